"""What the source says of a line of a step: what it goes through, what it needs, what it does again."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest

from ddpdoctor.checks.performance.source._again import first_forward
from ddpdoctor.checks.performance.source._batch_work import of_the_batch
from ddpdoctor.checks.performance.source._evaluated import evaluation_at
from ddpdoctor.checks.performance.source._past import past_at
from ddpdoctor.checks.performance.source._step_body import seldom
from ddpdoctor.checks.performance.source._unchanging import made_anew
from ddpdoctor.watch.rank.measured.lines import Lines

if TYPE_CHECKING:
    from pathlib import Path

MARK = "  # here"


def loop(*lines: str, before: str = "seen, total = [], 0") -> str:
    """Return a training loop with these lines after its backward."""
    body = "\n".join(f"    {line}" for line in ("loss = F.cross_entropy(model(x), y)", "loss.backward()", *lines))
    return (
        f"import torch\nimport numpy as np\nmodel.train()\n{before}\nfor step, (x, y) in enumerate(loader):\n{body}\n"
    )


def meter(*lines: str) -> str:
    """Return a class with a method of these lines."""
    body = "\n".join(f"        {line}" for line in lines)
    return f"class Meter:\n    def __init__(self):\n        self.all = []\n    def update(self, value):\n{body}\n"


def at(tmp_path: Path, source: str) -> tuple[str, int]:
    """Write a source and return its file, and the line that is marked."""
    (file := tmp_path / "train.py").write_text(source)
    return str(file), next(number for number, line in enumerate(source.splitlines(), 1) if MARK in line)


GROWING = [
    loop("seen.append(loss.detach())", "mean = sum(seen) / len(seen)  # here"),
    loop("mean = torch.stack(seen).mean()  # here", "seen.append(loss.detach())"),
    loop("seen += [loss.item()]", "print(np.mean(seen))  # here"),
    loop("seen = torch.cat([seen, x])  # here", before="seen = torch.zeros(0, 4)"),
    loop("seen = np.append(seen, loss.item())  # here"),
    loop("if step in seen:  # here", "    continue", "seen.append(step)"),
    loop("seen.append(step)", "for each in seen:", "    total = max(total, each)  # here"),
    loop("seen.append(step)", "best = max(each for each in seen)  # here"),
    loop("seen.append(step)", "seen.sort()  # here"),
    meter("self.all.append(value)", "return float(np.median(self.all))  # here"),
]
BOUNDED = [
    loop("seen.append(loss.item())  # here"),
    loop("seen.append(loss.item())", "count = len(seen)  # here"),
    loop("seen.append(loss.item())", "last = sum(seen[-10:])  # here"),
    loop("seen.append(loss.item())", "mean = sum(seen)  # here", "if len(seen) > 9:", "    seen.pop(0)"),
    loop("seen.append(loss.item())", "mean = sum(seen)  # here", "seen = seen[-100:]"),
    loop("seen.append(loss.item())", "seen.sort()  # here", "del seen[20:]"),
    loop("seen = [each for each in y]", "seen.append(0)", "mean = sum(seen)  # here"),
    loop("seen.append(step)", "mean = sum(seen)  # here", before="seen = deque(maxlen=100)"),
    loop("total += sum(weights)  # here"),
    loop("total += loss.detach()  # here"),
    meter("self.all.append(value)", "self.all = self.all[-9:]", "return float(np.median(self.all))  # here"),
    "seen = []\nfor x in loader:\n    seen.append(x)\nmean = sum(seen)  # here\n",
]


@pytest.mark.parametrize("source", GROWING)
def test_what_grows_with_each_step_and_is_gone_through_is_found(tmp_path: Path, source: str) -> None:
    """By a call, a comprehension, a loop, a search or a copy; of a list, a tensor or an attribute."""
    file, number = at(tmp_path, source)
    past = past_at(file, number, file, number)
    assert past is not None
    assert past.line


@pytest.mark.parametrize("source", BOUNDED)
def test_what_is_emptied_or_only_added_to_is_none(tmp_path: Path, source: str) -> None:
    """A last few, a list that the step makes anew, a deque of so many, a sum; and what is read after the loop."""
    file, number = at(tmp_path, source)
    assert past_at(file, number, file, number) is None


@pytest.mark.parametrize(
    ("call", "found"),
    [("report(step, seen)", "seen"), ("report(step, values=seen)", "seen"), ("report(step, weights)", "")],
)
def test_a_list_that_is_handed_to_a_function_is_the_callers(tmp_path: Path, call: str, found: str) -> None:
    """By its place or its name; and none where the caller hands over another one."""
    helper = "def report(step, values):\n    return sum(values) / len(values)  # here\n"
    source = helper + loop("seen.append(loss.item())", f"mean = {call}  # outer")
    file, number = at(tmp_path, source)
    outer = next(line for line, text in enumerate(source.splitlines(), 1) if "# outer" in text)
    past = past_at(file, number, file, outer)
    assert (past.name if past is not None else "") == found


def prepared(*lines: str, head: str = "for step, (x, y) in enumerate(loader):") -> str:
    """Return a training loop with these lines before its forward."""
    body = "\n".join(
        f"    {line}" for line in (*lines, "loss = model(x).mean()", "loss.backward()", "optimizer.step()")
    )
    return f"import torch\nmodel = DDP(net)\nstate = 0\n{head}\n{body}\n"


OF_BATCH = [
    prepared("x = torch.tensor([vocabulary[word] for word in x])  # here"),
    prepared("ids = [tokenize(text) for text in x]", "x = torch.tensor(ids)  # here"),
    prepared("x = augment(x, 0.5)  # here", head="for x, y in loader:"),
    prepared("rows = []", "for text in x:  # here", "    rows.append(tokenize(text))", head="for x, y in loader:"),
    prepared("x, y = next(batches)", "x = decode(x)  # here", head="for step in batch_counter:"),
]
OF_MORE = [
    prepared("x = net(x)  # here").replace("state = 0", "net.eval()"),
    prepared("x = model.module.encode(x)  # here"),
    prepared("features = model(x)", "x = sort(features)  # here"),
    prepared("x = x + state  # here", "state = x"),
    prepared("x = make(step)  # here"),
    prepared("x = torch.randn(8, 4)  # here", head="for step in range(100):"),
    prepared("x = make(step)  # here", head="for step in range(100):"),
    prepared("dist.all_reduce(x)  # here"),
    prepared("log(x)  # here"),
    "for x in loader:\n    x = tokenize(x)  # here\n",
]


@pytest.mark.parametrize(("source", "found"), [(each, True) for each in OF_BATCH] + [(each, False) for each in OF_MORE])
def test_what_needs_the_batch_alone_is_told_from_what_needs_more(tmp_path: Path, source: str, *, found: bool) -> None:
    """The names that a statement reads are the batch's, or no step binds them; a model makes of it something else."""
    file, number = at(tmp_path, source)
    assert bool(of_the_batch(file, number)) == found


AGAIN = [
    loop("with torch.no_grad():", "    hits += accuracy(model(x), y)  # here"),
    loop("with torch.no_grad():", "    hits += (model.module(x).argmax(1) == y).sum()  # here"),
    loop("model.eval()", "with torch.inference_mode():", "    out = model(x)  # here", "model.train()"),
]
ANOTHER = [
    loop("out = model(x)  # here"),
    loop("with torch.no_grad():", "    out = teacher(x)  # here"),
    loop("with torch.no_grad():", "    out = model(x.flip(0))  # here"),
    loop("x = augment(x)", "with torch.no_grad():", "    out = model(x)  # here"),
    loop("x.add_(noise)", "with torch.no_grad():", "    out = model(x)  # here"),
    loop("for x, y in others:", "    with torch.no_grad():", "        out = model(x)  # here"),
]


@pytest.mark.parametrize(("source", "found"), [(each, True) for each in AGAIN] + [(each, False) for each in ANOTHER])
def test_a_forward_is_done_again_where_model_and_batch_are_the_same(
    tmp_path: Path, source: str, *, found: bool
) -> None:
    """And only without gradients: two forwards that both train are wanted."""
    file, number = at(tmp_path, source)
    assert bool(first_forward(file, number)) == found


def test_a_condition_counts_steps_and_no_samples(tmp_path: Path) -> None:
    """In a loop over the samples of a batch, within that of the steps, the counter of the steps is asked."""
    source = loop("for i in range(len(y)):", "    print(losses[i].item())  # here")
    file, number = at(tmp_path, source)
    assert "if step % 100 == 0:" in seldom(file, number)


class Recorder:
    """A process that is watched, and keeps nothing of what is told."""

    log = True

    def emit(self, kind: type, **facts: object) -> None:
        """Take what is told."""


def test_python_switches_threads_as_often_as_before_when_all_is_told() -> None:
    """Only while the lines are looked at it switches more often: a stretch of Python counts to its own line then."""
    interval = sys.getswitchinterval()
    lines = Lines(Recorder())  # type: ignore[arg-type]
    lines.begin()
    assert sys.getswitchinterval() < interval
    time.sleep(0.02)
    lines.end(300)
    assert sys.getswitchinterval() == pytest.approx(interval)


def test_an_interval_that_the_script_sets_meanwhile_stays() -> None:
    """What is put back is what the watch has set, and nothing else."""
    interval = sys.getswitchinterval()
    lines = Lines(Recorder())  # type: ignore[arg-type]
    lines.begin()
    sys.setswitchinterval(0.02)
    lines.end(1)
    try:
        assert sys.getswitchinterval() == pytest.approx(0.02)
    finally:
        sys.setswitchinterval(interval)


def layer(*lines: str, init: str = "self.size = size", given: str = "size: int", others: str = "") -> str:
    """Return a module whose forward has these lines."""
    body = "\n".join(f"        {line}" for line in lines)
    return (
        "import math\nimport torch\nfrom torch import nn\nfrom functools import lru_cache\n"
        f"class Layer(nn.Module):\n    def __init__(self, {given}):\n        super().__init__()\n        {init}\n"
        f"{others}    def forward(self, x, lengths, offset=0):\n{body}\n"
    )


def helper(*lines: str, given: str = "length", called: str = "x.size(1)", decorated: str = "") -> str:
    """Return a module whose forward calls a method with these lines."""
    body = "\n".join(f"        {line}" for line in lines)
    others = f"    {decorated}\n" if decorated else ""
    return layer(
        f"return x + self.table({called})", others=f"{others}    def table(self, {given}):\n{body}\n"
    )  # fmt: skip


TRIANGLE = "mask = torch.triu(torch.ones(n, n), 1)"
SAME_EACH_STEP = [
    layer("n = x.size(1)", f"{TRIANGLE}  # here", "return x + mask"),
    layer("b, n, c = x.shape", "mask = torch.full((n, n), -1e9)", "mask = mask.triu(1).to(x.device)  # here"),
    layer("table = torch.arange(self.size).sin().to(x)  # here", "return x + table"),
    layer("made = x.new_zeros(self.size, 8)", "for i in range(self.size):", "    made[i] = math.sin(i)  # here"),
    layer(
        "rows = [math.sin(i) for i in range(self.config.width)]  # here", init="self.config = config", given="config"
    ),
    layer(
        "if self.causal:", f"    n = {8}", f"    {TRIANGLE}  # here", init="self.causal = causal", given="causal=True"
    ),
    helper("far = torch.arange(length)[:, None] - torch.arange(length)  # here", "return far"),
    helper("return torch.arange(length).exp()  # here", called="256"),
    (
        "import torch\nfor x, y in loader:\n    mask = torch.tril(torch.ones(512, 512)) > 0  # here\n"
        "    model(x, mask).sum().backward()\n"
    ),
    (
        "import torch\nSIZE = 512\nfor x, y in loader:\n    mask = torch.tril(torch.ones(SIZE, x.size(1)))  # here\n"
        "    model(x, mask).sum().backward()\n"
    ),
]
OTHER_EACH_STEP = [
    layer("mask = x > 0  # here"),
    layer("mask = torch.arange(x.size(1)) < lengths[:, None]  # here"),
    layer("mask = torch.rand(x.size(1)) > 0.5  # here"),
    layer("noise = torch.zeros(x.size(1)).normal_()  # here"),
    layer("h = torch.zeros(x.size(0), self.size)  # here"),
    layer("n = x.size(1)", f"{TRIANGLE}  # here", "mask[x[0] > 0] = 0"),
    layer("n = x.size(1)", f"{TRIANGLE}  # here", "mask += x"),
    layer("made = torch.arange(offset, offset + 9).exp()  # here"),
    layer("w = self.weight.softmax(0)  # here", init="self.weight = nn.Parameter(torch.zeros(size))"),
    layer("w = torch.arange(9) * self.scale  # here", init="self.scale = scale", given="scale"),
    layer("self.seen.append(1)", "w = torch.tensor(self.seen).sort()  # here", init="self.seen = []"),
    layer("self.step += 1", "w = torch.arange(self.step).exp()  # here", init="self.step = 0"),
    layer("w = torch.load('mask.pt')  # here"),
    helper("return torch.arange(length).exp()  # here", called="offset"),
    helper("return torch.arange(length).exp()  # here", called="int(lengths.max())"),
    helper("return torch.arange(length).exp()  # here", decorated="@lru_cache", given="length"),
    (
        "import torch\nn = 0\nfor x, y in loader:\n    n += 1\n    w = torch.arange(n).exp()  # here\n"
        "    model(x, w).backward()\n"
    ),
    (
        "import torch\nfor epoch in range(9):\n    for x in loader:\n        w = torch.arange(epoch).exp()  # here\n"
        "        model(x, w).backward()\n"
    ),
    (
        "import torch\nfor x in loader:\n    table = table.exp() if 0 else torch.ones(2).exp()  # here\n"
        "    model(x, table).backward()\n"
    ),
    "import torch\nclass Data:\n    def __getitem__(self, i):\n        return torch.arange(9).exp()  # here\n",
]


@pytest.mark.parametrize(
    ("source", "same"), [(each, "same") for each in SAME_EACH_STEP] + [(each, "other") for each in OTHER_EACH_STEP]
)
def test_what_is_made_of_sizes_and_numbers_alone_is_the_same_in_each_step(
    tmp_path: Path, source: str, same: str
) -> None:
    """Not what a batch, a parameter, chance, an epoch or an earlier step changes; nor what is cached or loaded."""
    assert bool(made_anew(*at(tmp_path, source))) == (same == "same")


def test_a_past_that_a_method_joins_for_a_function_is_found(tmp_path: Path) -> None:
    """The function is named at no line of the loop: the method that each step calls is its only caller."""
    head = "def rank(values):\n    return np.argsort(values)  # here\n"
    meter_of_all = (
        meter("self.all.append(value)") + "    def compute(self):\n        return rank(np.concatenate(self.all))\n"
    )
    source = head + meter_of_all + loop("meter.update(loss)", "score = meter.compute()  # outer")
    file, number = at(tmp_path, source)
    outer = next(line for line, text in enumerate(source.splitlines(), 1) if "# outer" in text)
    past = past_at(file, number, file, outer)
    assert past is not None
    assert past.name == "self.all"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (("model.eval()", "for x in batches:", "    right += model(x).sum()"), True),
        (("model.eval()", "return model(batches)"), False),
        (("target.eval()", "for x in batches:", "    loss = model(x) - target(x)", "    loss.backward()"), False),
    ],
)
def test_a_function_that_evaluates_is_known_by_what_it_does(tmp_path: Path, body: tuple[str, ...], found: bool) -> None:  # noqa: FBT001
    """Whatever its name is; not one that looks at a single batch, or trains."""
    lines = "\n".join(f"    {each}" for each in body)
    file, number = at(tmp_path, f"def accuracy(model, batches):\n{lines}\nscore = accuracy(net, dev)  # here\n")
    assert (evaluation_at(file, number) == number) is found
