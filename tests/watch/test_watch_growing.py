"""Graphs that live on after their step: which variable keeps them, and what is none of them."""

from __future__ import annotations

from typing import Any

import pytest

from ddpdoctor.watch.events import GraphsKept
from ddpdoctor.watch.rank.growing.graphs import Graphs
from ddpdoctor.watch.user_frames import is_users

STEPS = 36
TRAINING = """
import torch

class Meter:
    def __init__(self):
        self.values = []

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.state = torch.nn.Linear(4, 4), None

    def forward(self, inputs):
        hidden = self.layer(inputs) if self.state is None else self.layer(inputs) + self.state
        {forward}
        return hidden

def train(graphs, steps):
    net, meter, kept, total = Net(), Meter(), {{}}, torch.zeros(())
    for step in range(steps):
        output = net(torch.randn(2, 4))
        loss = output.square().mean()
        if graphs.wants:
            graphs.mark(loss)
        loss.backward(retain_graph=True)
        {after}
        graphs.stepped(step + 1)
"""
KEPT = {
    "a sum": ("", "total = total + loss", "total"),
    "a list of an object": ("", "meter.values.append(loss)", "meter.values"),
    "tuples in a dict": ("", "kept.setdefault('all', []).append((step, output))", "kept"),
    "a state of the model": ("self.state = hidden", "", "net.state"),
}
NONE = {
    "detached": ("self.state = hidden.detach()", "total += loss.detach(); kept[step] = output.detach()"),
    "the last one alone": ("", "kept['last'] = output; meter.values[:] = [loss]"),
    "a few steps": ("self.state = hidden.detach() if self.training and len(META) % 4 else hidden", "META.append(step)"),
    "the last four": ("", "meter.values = [*meter.values[-3:], loss]"),
}


class Recorder:
    """Takes what would be told."""

    def __init__(self) -> None:
        """Begin with nothing told."""
        self.told: list[dict[str, Any]] = []

    def emit(self, event: type, /, **values: Any) -> None:
        """Take an event."""
        assert event is GraphsKept
        self.told.append(values)


def _told(forward: str, after: str, tmp_path: Any) -> list[dict[str, Any]]:
    recorder: Any = Recorder()
    script = tmp_path / "train.py"
    script.write_text(TRAINING.format(forward=forward or "pass", after=after or "pass"))
    assert is_users(str(script))
    names: dict[str, Any] = {"META": [], "__name__": "train"}
    exec(compile(script.read_text(), str(script), "exec"), names)  # noqa: S102 - the text above
    names["train"](Graphs(recorder), STEPS)
    told: list[dict[str, Any]] = recorder.told
    return told


@pytest.mark.parametrize("way", KEPT)
def test_who_keeps_graphs_is_named(tmp_path: Any, way: str) -> None:
    """A variable, an object's attribute, a container in another, a module's state."""
    forward, after, name = KEPT[way]

    (told,) = _told(forward, after, tmp_path)

    assert name in [each.name for each in told["keepers"]]
    assert told["alive"] == told["marked"] == 12


@pytest.mark.parametrize("way", NONE)
def test_graphs_that_go_are_not_told(tmp_path: Any, way: str) -> None:
    """What is detached, replaced, or kept for a few steps."""
    assert _told(*NONE[way], tmp_path) == []
