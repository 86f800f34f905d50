"""torch.distributed.checkpoint loads what it is asked for: moments that a fresh optimizer does not have are missed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from helpers import CHECKS

from ddpdoctor.selftest.trainings import watched

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

SCRIPT = """
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def build():
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 2))
    return model, KIND

def train(model, optimizer):
    for step in range(4):
        optimizer.zero_grad()
        model(torch.full((2, 4), float(step + dist.get_rank()))).square().mean().backward()
        optimizer.step()

def state(model, optimizer):
    return {"model": model.state_dict(), "optim": optimizer.state_dict()}

def resume(model, optimizer):
    held = state(model, optimizer)
    dcp.load(held, checkpoint_id=FOLDER)  # guilty
    model.load_state_dict(held["model"])
    optimizer.load_state_dict(held["optim"])

dist.init_process_group("gloo")
model, optimizer = build()
train(model, optimizer)
dcp.save(state(model, optimizer), checkpoint_id=FOLDER)
model, optimizer = build()
resume(model, optimizer)
assert len(optimizer.state) == LOADED
train(model, optimizer)
dist.destroy_process_group()
"""
MENDED = (
    (
        'return {"model": model.state_dict(), "optim": optimizer.state_dict()}',
        'weights, moments = get_state_dict(model, optimizer)\n    return {"model": weights, "optim": moments}',
    ),
    (
        '    model.load_state_dict(held["model"])\n    optimizer.load_state_dict(held["optim"])\n',
        '    set_state_dict(model, optimizer, model_state_dict=held["model"], optim_state_dict=held["optim"])\n',
    ),
)
ADAM, SGD = "torch.optim.Adam(model.parameters(), lr=0.01)", "torch.optim.SGD(model.parameters(), lr=0.01)"


def write(folder: Path, kind: str, loaded: int, *edits: tuple[str, str]) -> Path:
    """Write the script, whose optimizer has so many states after the load."""
    text = SCRIPT
    for old, new in (*edits, ("KIND", kind), ("FOLDER", repr(str(folder / "saved"))), ("LOADED", str(loaded))):
        assert old in text
        text = text.replace(old, new)
    path = folder / "train.py"
    path.write_text(text)
    return path


def test_moments_that_were_not_asked_for_are_told(tmp_path: Path, jobs: Jobs) -> None:
    """The load succeeds, and leaves the optimizer empty."""
    path = write(tmp_path, ADAM, 0)
    (found,) = watched(path, CHECKS, jobs)

    assert found.check.slug == "state-not-resumed"
    assert "of the 6 entries" in found.finding.message
    assert found.finding.place.line == 1 + path.read_text().splitlines().index(
        f"    dcp.load(held, checkpoint_id={str(tmp_path / 'saved')!r})  # guilty"
    )


def test_moments_that_are_made_first_are_loaded(tmp_path: Path, jobs: Jobs) -> None:
    """As the fix says it."""
    assert not watched(write(tmp_path, ADAM, 2, *MENDED), CHECKS, jobs)


def test_an_optimizer_without_a_state_misses_nothing(tmp_path: Path, jobs: Jobs) -> None:
    """Plain SGD has none to be saved."""
    assert not watched(write(tmp_path, SGD, 0), CHECKS, jobs)
