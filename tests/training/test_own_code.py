"""What the user's own lines of a loop do: what stands there, and what is said of it where it takes much of a step."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from helpers import CHECKS

from ddpdoctor.checks.performance.source._at_line import what_at
from ddpdoctor.report.steps import steps_lines
from ddpdoctor.watch.dispatcher import Dispatcher, Found
from ddpdoctor.watch.events import EpochStarted, Joined, LinesSampled, Profiled, RankSteps, SampledLine, StepsTimed
from ddpdoctor.watch.events.steps.blocks import STEPS, Block
from ddpdoctor.watch.rank.measured.line_kinds import Sampled, by_line

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.watch.rank.measured.line_kinds import Line

MILLISECOND = 1_000_000
WHOLE = 1000 * MILLISECOND


def forward(given: str, *lines: str) -> str:
    """Return a module whose forward has these lines."""
    body = "\n".join(f"        {each}" for each in lines)
    return f"class Net:\n    def forward(self, {given}):\n{body}"


LOOK = "def look(module, args, output):\n    seen.append(output.std())  # here\nlayer.register_forward_hook(look)"
MADE = """
def of(name):
    def look(module, args, output):
        seen[name] = output.std()  # here
    return look
layer.register_forward_hook(of("a"))
"""
OF_TENSOR = """
def look(gradient):
    norms.append(gradient.norm().item())  # here
weight.register_hook(look)
"""
MARKED = {
    "parameters one by one": [
        "for p, q in zip(average.parameters(), model.parameters()):\n    p.copy_(0.9 * p + 0.1 * q)  # here",
        "held = list(model.parameters())\nfor p in held:\n    p.mul_(2)  # here",
        "total = sum(p.pow(2).sum() for p in model.parameters())  # here",
        "for name, value in model.state_dict().items():\n    kept[name] = value.clone()  # here",
        "for group in optimizer.param_groups:\n    for p in group['params']:\n        p.clamp_(-1, 1)  # here",
    ],
    "numbers one by one": [
        "kept = [v.item() for v in out.flatten()]  # here",
        "for score, label in zip(out.max(1)[0], y):\n    seen[int(label)] += score  # here",
        "labels = y.cpu().numpy()\nfor label in labels:\n    seen[label] += 1  # here",
        "for p, t in zip(out.argmax(1).tolist(), y.tolist()):\n    table[p][t] += 1  # here",
    ],
    "converted": ["import torch\nx = torch.tensor(features)  # here"],
    "asleep": ["import time\nwhile not ready():\n    time.sleep(0.1)  # here"],
    "file written": [
        "log = open('log')\nlog.write(text)  # here",
        "import os\nos.fsync(number)  # here",
        "import json\njson.dump(values, target)  # here",
        "writer.add_histogram('w', weights, step)  # here",
    ],
    "file read": [
        "import numpy as np\nweights = np.load(path)  # here",
        "from pathlib import Path\ntext = Path(name).read_text()  # here",
        "with open(path) as f:\n    rows = [line.split() for line in f]  # here",
        "with open(path, 'rb') as f:\n    for line in f:\n        rows.append(line.strip())  # here",
        "import gzip\nwith gzip.open(path) as f:\n    head = f.read(100)  # here",
    ],
    "hook": [LOOK, MADE, OF_TENSOR, "weight.register_hook(lambda g: norms.append(g.norm().item()))  # here"],
    "samples one by one": [
        forward("x", "for i in range(x.shape[0]):", "    made.append(self.layer(x[i]))  # here"),
        forward(
            "x",
            "count = x.size(0)",
            "for i in range(count):",
            "    hidden = self.layer(x[i, :])",
            "    made[i] = self.head(hidden)  # here",
        ),
        forward("batch", "for each in batch:", "    made.append(self.layer(each))  # here"),
        forward("x", "rows, width = x.shape", "for i in range(rows):", "    made.append(self.layer(x[i]))  # here"),
    ],
    "filled piece by piece": [
        forward("x, n", "for i in range(len(n)):", "    mask[i, : n[i]] = 1  # here"),
        forward(
            "x, lengths",
            "for b in range(x.shape[0]):",
            "    for i in range(int(lengths[b])):",
            "        mask[b, i, : i + 1] = 1  # here",
        ),
        "for i, row in enumerate(rows):\n    n = min(len(row), 9)\n    padded[i, :n] = row[:n]  # here",
        "for i in range(n):\n    for j in range(n):\n        if i > j:\n            bias[i, j] = abs(i - j)  # here",
        "for i in range(len(y)):\n    counts[y[i]] += 1  # here",
    ],
    "losses row by row": [
        "for x, y in data:\n    for i in range(len(y)):\n        loss += F.mse_loss(out[i:i + 1], y[i:i + 1])  # here",
        "for x, y in data:\n    for i in range(y.size(0)):\n        loss = loss + criterion(out[i], y[i])  # here",
        forward("out, y", "for i in range(out.shape[0]):", "    parts.append(bce_loss(out[i], y[i]))  # here"),
    ],
}
PLAIN = [
    "for x, ys in loader:\n    for i in range(len(heads)):\n        loss += criterion(out[i], ys[i])  # here",
    "for x, y in loader:\n    for i in range(len(y)):\n        loss += criterion(out, y[i])  # here",
    "for x, y in loader:\n    for i in range(len(y)):\n        loss = loss + criterion(out[i], y[i]) * loss  # here",
    "for x, y in loader:\n    for i in range(len(y)):\n        loss += criterion(decode(out[i]), y[i])  # here",
    "for i in range(1, n):\n    total[i] = total[i - 1] + x[i]  # here",
    "for t in range(x.shape[1]):\n    out[:, t] = cell(x[:, t])  # here",
    "for t in range(x.shape[1]):\n    out[:, t] = self.cell(x[:, t])  # here",
    "for t in range(x.shape[1]):\n    out[:, t] = encoder.encode(x[:, t])  # here",
    "for t in range(9):\n    h = h * 0.9 + x[t]\n    out[t] = h  # here",
    "for i in range(9):\n    best[0] = x  # here",
    "for i in range(9):\n    out[i] = x\n    if out[0] > 3:\n        break  # here",
    "for name in names:\n    kept[name] = 1  # here",
    "for batch in loader:\n    model(batch).sum().backward()  # here",
    "for p in model.parameters():\n    norm += p.grad.norm().item()  # here",
    "for run in [p.numpy() for p in model.parameters()]:\n    loss = model(run)\n    loss.backward()  # here",
    forward("x", "for i in range(x.shape[0]):", "    h = self.cell(x[i], h)  # here"),
    forward("x", "for i in range(x.shape[0]):", "    self.h = self.cell(x[i])  # here"),
    forward("x", "for i in range(x.shape[1]):", "    made.append(self.layer(x[:, i]))  # here"),
    forward("x", "for i in range(len(self.experts)):", "    made.append(self.experts[i](x))  # here"),
    forward("x", "for layer in self.layers:", "    x = layer(x)  # here"),
    forward("x", "for i in range(2):", "    made.append(self.layer(x[i]))  # here"),
    "buffer.write(batch)  # here",
    "value = memory.read()  # here",
    "for x, y in held_out:\n    right += (net(x).argmax(1) == y).sum().item()  # here",
    "with open(path, 'w') as f:\n    rows = list(f)  # here",
    "with open(path) as f:\n    rows = list(others)  # here",
    "with open(path) as f:\n    for line in f:\n        model(line).backward()  # here",
    "asleep.sleep(1)  # here",
    "def look(grad):\n    return grad * 2  # here\nparameter.register_post_accumulate_grad_hook(look)",
]


def kind_of(tmp_path: Path, source: str) -> str:
    """Return what the line does that is marked; each source is read once."""
    file = tmp_path / "train.py"
    file.write_text(source)
    number = next(at for at, line in enumerate(source.splitlines(), 1) if line.endswith("# here"))
    found = what_at(str(file), number)
    return found[0] if found else ""


@pytest.mark.parametrize(("kind", "source"), [(kind, source) for kind, all_of in MARKED.items() for source in all_of])
def test_what_a_line_does_stands_there(tmp_path: Path, kind: str, source: str) -> None:
    """A loop by what it goes through, a call by its name, a hook by where it is registered."""
    assert kind_of(tmp_path, source) == kind


@pytest.mark.parametrize("source", PLAIN)
def test_a_line_that_has_to_be_so_is_none_of_these(tmp_path: Path, source: str) -> None:
    """A loop of steps, over time or layers, or whose passes need each other; a call that only sounds like one."""
    assert kind_of(tmp_path, source) == ""


def looked(*lines: SampledLine, **given: Any) -> list[str]:
    """Return what is found where rank 0 and rank 1 spend a second in 50 steps of 20 ms on these lines."""
    return [f"{each.check.slug}: {each.finding.message}" for each in found_of(*lines, **given)]


def found_of(
    *lines: SampledLine, batch: int = 64, recorded: int = 0, worked: Any = ((), ()), **facts: Any
) -> list[Found]:
    """Return the findings themselves."""
    dispatcher = Dispatcher(CHECKS)
    for number in (0, 1):
        told: dict[str, Any] = {"pid": 100 + number, "time": 1.0, "rank": number}
        list(dispatcher.see(Joined(**told, world_size=2, backend="gloo")))
        passed: dict[str, Any] = {
            "loader": 0, "number": 0, "training": True, "dataset": "D", "length": 100, "batches": 50, "workers": 0,
            "batch_size": batch, "drop_last": False, "iterable": True, "sampler": None, "given": 0, "site": None,
            "owning_library": "", "subgroups": False, "persistent": False,
        }  # fmt: skip
        list(dispatcher.see(EpochStarted(**told, **passed)))
        measured: dict[str, Any] = {
            "exposed": (), "hidden": (), "buckets": (), "cost": 0.0, "model": -1, "forwards": 0.0, "synced": 0.0,
            "backwards": 1.0, "recorded": recorded, "worked": worked[number],
        }  # fmt: skip
        list(dispatcher.see(Profiled(**told, total=(20 * MILLISECOND,) * 50, **measured)))
        list(dispatcher.see(LinesSampled(**told, steps=50, nanoseconds=WHOLE, processor=WHOLE, sampled=lines)))
    parts = {"total": 20 * MILLISECOND * STEPS, "data": 0, "first": 0, "forward": 0, "optimizer": 0}
    spans = tuple(Block(number=at, end=at, backward=10 * MILLISECOND * STEPS, **parts) for at in range(20))
    given: dict[str, Any] = {"device": "cpu", "threads": 1, "cpus": 4, **facts}
    event = StepsTimed(pid=0, time=2.0, ranks=tuple(RankSteps(number, 1, spans, **given) for number in (0, 1)))
    found = list(dispatcher.see_of(next(iter(dispatcher.trainings)), event))
    assert not dispatcher.crashes
    return found


def line(tmp_path: Path, source: str, part: float, *, kind: str = "", steps: int = 50) -> SampledLine:
    """Return the marked line of a source, which takes so much of the time."""
    file = tmp_path / str(len([*tmp_path.iterdir()])) / "train.py"
    file.parent.mkdir()
    file.write_text(source)
    number = next(at for at, text in enumerate(source.splitlines(), 1) if text.endswith("# here"))
    took = int(part * WHOLE)
    return SampledLine(kind, str(file), number, "main", took, took, steps, str(file), number, "main", took)


def test_a_loop_over_parameters_is_told_with_its_share(tmp_path: Path) -> None:
    """In each step or now and then; not where it is rare, takes little, or the line does something else there."""
    source = MARKED["parameters one by one"][0]
    (said,) = looked(line(tmp_path, source, 0.3))
    assert said.startswith("python-loop-in-step: the loop at ")
    assert said.endswith("train.py:1 goes through parameters one by one: 6.0 of 20.0 ms a step, 30%")
    assert len(looked(line(tmp_path, source, 0.3, steps=6))) == 1
    assert looked(line(tmp_path, source, 0.3, steps=4)) == looked(line(tmp_path, source, 0.08)) == []
    assert looked(line(tmp_path, source, 0.3, kind="optimizer")) == [], "an optimizer of the user's own"


def test_weights_that_ddp_keeps_equal_need_no_sending(tmp_path: Path) -> None:
    """A loop that broadcasts each parameter is to be left out, and not to be made faster."""
    source = "for p in model.parameters():\n    dist.broadcast(p.data, src=0)  # here"
    (told,) = found_of(line(tmp_path, source, 0.3))
    assert "the replicas stay equal" in told.finding.fix.summary


def test_loops_of_one_kind_are_told_together_where_each_takes_little(tmp_path: Path) -> None:
    """Two of 8 % each over parameters; not what is small, goes through other things, or is one loop."""
    updates, penalty = MARKED["parameters one by one"][:2]
    (said,) = looked(line(tmp_path, updates, 0.08), line(tmp_path, penalty, 0.07))
    assert said == (
        "python-loop-in-step: 2 loops go through parameters one by one, and take 3.0 of 20.0 ms a step together, 15%"
    )
    numbers = MARKED["numbers one by one"][0]
    assert looked(line(tmp_path, updates, 0.08), line(tmp_path, numbers, 0.08)) == []
    assert looked(*(line(tmp_path, updates, 0.02) for _ in range(8))) == []
    assert looked(line(tmp_path, updates, 0.05), line(tmp_path, penalty, 0.04)) == []
    (said,) = looked(line(tmp_path, updates, 0.3), line(tmp_path, penalty, 0.08))
    assert said.endswith("30%"), "the large one is told by itself"


def test_samples_one_by_one_are_told_of_batches_alone(tmp_path: Path) -> None:
    """A loop over two views of a sample is no loop over a batch."""
    one = line(tmp_path, MARKED["samples one by one"][0], 0.4, kind="forward")
    assert len(looked(one)) == 1
    assert looked(one, batch=4) == []


def test_a_table_that_is_the_same_is_told_for_all_lines_that_make_it(tmp_path: Path) -> None:
    """In a forward; the lines of one function are told once, and a line that reads the batch is none."""
    lines = ("n = x.size(1)", "far = (torch.arange(n)[:, None] - torch.arange(n)).abs()  # here", "return x + far")
    own = line(tmp_path, "import torch\n" + forward("x", *lines), 0.4, kind="forward")
    (said,) = looked(own)
    assert said.startswith("same-tensor-made-each-step: ")
    assert said.endswith("of sizes and numbers alone: 8.0 of 20.0 ms a step, 40%")
    assert looked(own._replace(inner_line=own.line + 1)) == looked(own._replace(kind="backward")) == []


def test_sleeping_writing_and_hooks_are_told_once_for_all_their_lines(tmp_path: Path) -> None:
    """Each with its share; on a GPU too, where Python sleeps as well."""
    for kind in ("asleep", "file written"):
        (said,) = looked(line(tmp_path, MARKED[kind][0], 0.2))
        assert said.startswith("needless-work-in-step: ")
        assert said.endswith("in each step: 4.0 of 20.0 ms, 20%")
    assert len(looked(line(tmp_path, MARKED["hook"][0], 0.2, kind="forward"))) == 1
    assert looked(line(tmp_path, MARKED["asleep"][0], 0.2, kind="data")) == [], "the loader waits by itself"


def test_evaluations_are_told_where_they_take_much_and_come_often(tmp_path: Path) -> None:
    """A policy that evaluates its actions in each step trains by that; once after an epoch is as it should be."""
    source = "score = evaluate(model, held_out)  # here"
    assert len(looked(line(tmp_path, source, 0.5, steps=10, kind="module called"))) == 1
    assert looked(line(tmp_path, source, 0.5, steps=50, kind="module called")) == []
    assert looked(line(tmp_path, source, 0.5, steps=1, kind="module called")) == []
    assert looked(line(tmp_path, source, 0.2, steps=10, kind="module called")) == []


SAMPLER = """
for batch in loader:
    model(batch).backward()
class ByLength:
    def __iter__(self):
        return iter(sorted(self.texts, key=len))  # here
"""


@pytest.mark.parametrize(("head", "steps", "said"), [
    ("for batch in loader:", 3, "draws up the order of the samples in 3 of 50 steps"),
    ("for batch in loader:", 50, "draws up the order of the samples in each step"),
    ("for batch in loader:", 1, ""),
    ("batch = next(iter(loader))", 50, "begins a pass over a loader in each step"),
])  # fmt: skip
def test_a_sampler_that_works_long_as_epochs_begin_is_told(tmp_path: Path, head: str, steps: int, said: str) -> None:
    """Once is no rule; who begins a pass in each step is told that."""
    own = line(tmp_path, SAMPLER.replace("for batch in loader:", head), 0.4, kind="loader begun", steps=steps)
    one = own._replace(line=2)
    found = looked(one._replace(inside=((one.file, own.line, "__iter__", one.nanoseconds, one.processor, 0),)))
    assert [each.startswith("needless-work-in-step") and said in each for each in found] == [True] * bool(said)


def test_a_profiler_that_records_each_step_is_told() -> None:
    """A schedule that records a few of them is what it is made for."""
    assert [each.partition(":")[0] for each in looked(recorded=50)] == ["profiler-left-on"]
    assert looked(recorded=3) == looked(recorded=49) == []


def test_work_that_differs_by_turns_is_told() -> None:
    """Not where one rank is always the slow one, all have the same work, or it is no matter."""
    short, long = 4 * MILLISECOND, 20 * MILLISECOND
    turns = ((short, long) * 25, (long, short) * 25)
    (said,) = looked(worked=turns)
    assert said.startswith("work-differs-by-turns: ")
    assert said.endswith("the busiest computes 20.0 ms a step, 8.0 ms more than they do on average, 40%")
    assert looked(worked=((short,) * 50, (long,) * 50)) == [], "one rank is slow"
    assert looked(worked=((short, long) * 25,) * 2) == [], "all at once"
    assert looked(worked=tuple(tuple(each // 20 for each in rank) for rank in turns)) == [], "microseconds"
    rare = ((short,) * 50, (short, short, short, short, 30 * long) * 10)
    assert looked(worked=rare) == [], "now and then"
    assert looked(worked=turns, threads=4) == [], "other threads compute as well"


def test_a_line_has_the_lines_that_it_spends_its_time_in() -> None:
    """Longest first; a helper of many lines is not judged by one of them."""
    loop, update = ("/home/me/train.py", 9, "main"), "/home/me/ema.py"
    inner, other = (update, 3, "update"), (update, 4, "update")
    stacks: dict[tuple[str, tuple[Line, ...]], Sampled] = {
        ("", (loop, inner)): Sampled(30, 20, {1}, 5),
        ("", (loop, other)): Sampled(10, 10, {1}),
    }
    (_, one) = by_line({("backward", (("/home/me/train.py", 8, "main"),)): Sampled(50, 50, {1}), **stacks})
    assert one.inside == ((*inner, 30, 20, 5), (*other, 10, 10, 0))


def test_steps_of_several_models_are_told_without_what_ddp_counts() -> None:
    """The lines are there; what nobody counted is no zero."""
    inner = {"file": "/home/me/gan.py", "line": 7, "function": "main", "share": 0.4}
    told = {"kind": "backward", "file": "/home/me/gan.py", "line": 7, "function": "main", "share": 0.4, "inner": inner}
    rank = {"steps": 50, "total": [0.01, 0.02, 0.03], "buckets": [], "cost": 1e-5, "calls": [], "lines": [told]}
    spans = [[float(at), 0.16, 0, 0, 0, 0.08, 0, 0.08] for at in range(6)]
    parts = {part: [0.0, 0.0, 0.0] for part in ("data", "first", "forward", "backward", "optimizer", "rest")}
    steps = {
        "steps": 48,
        "waited_for_a_core": 0.0,
        "device": "cpu",
        "spans": spans,
        "a_step": {"total": [1, 1, 1], **parts},
    }
    text = "\n".join(steps_lines({"0": steps}, {"0": rank}))
    assert "50 steps of 20.0 ms" in text
    assert "gan.py:7 in main: backward" in text
    assert "hidden" not in text
    assert "Nothing was measured closely" in "\n".join(steps_lines({"0": steps}, {}))


AT_THE_END = """
import gc, sys
from ddpdoctor.watch.rank.measured.lines import Lines
class Told:
    log = object()
    def emit(self, *_, **__): pass
held = Lines(Told())
held.begin()
print(gc.callbacks.count(held._collects), file=sys.stderr)
"""


def test_a_program_that_ends_within_the_window_prints_nothing_of_ours() -> None:
    """The interpreter collects garbage at its end, where no line of the user's is left."""
    done = subprocess.run([sys.executable, "-c", AT_THE_END], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert done.stderr.split() == ["1"]
