"""A training that is compiled: the watch leaves torch.compile nothing to compile anew, and nothing to warn of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ddpdoctor.jobs.outcome import Returned
from ddpdoctor.registry import load_checks
from ddpdoctor.watch.pooled import Launch, watch_in_pool

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.jobs.pool import Jobs

TRAINING = """
import warnings
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

warnings.simplefilter("error", UserWarning)

class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, inputs):
        return self.layer(inputs).relu()

def train():
    torch.manual_seed(0)
    teacher = Teacher().requires_grad_(False)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for step in range(1, 25):
        if step == {step}:
            {compile}
        optimizer.zero_grad()
        model(teacher(torch.randn(4, 8))).sum().backward()
        optimizer.step()

dist.init_process_group("gloo")
train()
from torch._dynamo.utils import counters
assert counters["stats"]["unique_graphs"] == 1, dict(counters["stats"])
"""
WAYS = {
    "in the whole": 'teacher = torch.compile(teacher, backend="eager", fullgraph=True)',
    "in parts": 'teacher = torch.compile(teacher, backend="eager")',
    "in place": 'teacher.compile(backend="eager", fullgraph=True)',
}


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_a_compiled_module_is_compiled_once(tmp_path: Path, jobs: Jobs, way: str, step: int) -> None:
    """Whenever it is compiled, in a step that is compared or before it: anew it would take minutes, or fail."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING.format(step=step, compile=WAYS[way]))

    outcomes, found, _ = watch_in_pool(Launch(script=script, hang_after=100), load_checks(), jobs, lambda _: False)

    assert all(isinstance(each, Returned) for each in outcomes), outcomes
    assert [each.finding.message for each in found] == []


WRAPPED = """
import torch, torch.distributed as dist
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.aux = nn.Linear(8, 8), nn.Linear(8, 1)
    def forward(self, inputs):
        hidden = self.body(inputs).relu()
        return hidden.sum() + ({test}self.aux(hidden).sum())

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.compile(DDP(Net()), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(24):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).backward()
    optimizer.step()
    if step == 12:
        assert counters["stats"]["unique_graphs"] == 1, dict(counters["stats"])
        model.eval()
        with torch.no_grad():
            model(torch.randn(2, 8))
        model.train()
"""
TESTS: list[tuple[str, set[str]]] = [("", set()), ("0 * ", set()), ("0 if self.training else ", {"unused-parameters"})]


@pytest.mark.parametrize(("test", "slugs"), TESTS)
def test_a_compiled_wrapper_is_watched_as_any_other(tmp_path: Path, jobs: Jobs, test: str, slugs: set[str]) -> None:
    """Of torch.compile(DDP(model)) a healthy training gets no finding, and a fault is named by its cause."""
    script = tmp_path / "train.py"
    script.write_text(WRAPPED.format(test=test))

    outcomes, found, _ = watch_in_pool(Launch(script=script, hang_after=100), load_checks(), jobs, lambda _: False)

    assert {each.check.slug for each in found} == slugs, [each.finding.message for each in found]
    assert all(isinstance(each, Returned) for each in outcomes) is not bool(slugs), outcomes


TRACED = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def nodes(model, inputs):
    {nodes}

def train():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    inputs = torch.ones(5, 8)
    with torch.no_grad():
        before = nodes(net, inputs)
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for step in range(1, 7):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        if step == 3:
            net.eval()
            with torch.no_grad():
                assert nodes(net, inputs) == before
            net.train()

dist.init_process_group("gloo")
train()
"""
TRACERS = {
    "torch.export": "return len(torch.export.export(model, (inputs,)).graph.nodes)",
    "torch.jit.trace": 'return str(torch.jit.trace(model, inputs).inlined_graph).count("aten::")',
    "torch.fx": "return len(torch.fx.symbolic_trace(model).graph.nodes)",
    "make_fx": (
        "from torch.fx.experimental.proxy_tensor import make_fx; return len(make_fx(model)(inputs).graph.nodes)"
    ),
    "torch.vmap": "return torch.vmap(model)(inputs).numel()",
}


@pytest.mark.parametrize("tracer", TRACERS)
def test_what_an_evaluation_traces_holds_nothing_of_the_watch(tmp_path: Path, jobs: Jobs, tracer: str) -> None:
    """A model that is exported between two steps has the graph that it has without the watch."""
    script = tmp_path / "train.py"
    script.write_text(TRACED.format(nodes=TRACERS[tracer]))

    outcomes, found, _ = watch_in_pool(Launch(script=script, hang_after=100), load_checks(), jobs, lambda _: False)

    assert all(isinstance(each, Returned) for each in outcomes), outcomes
    assert [each.finding.message for each in found] == []
