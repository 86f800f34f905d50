"""Metrics, predictions and statistics of one rank's share in other forms than their broken cases, and healthy ones."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS, FIXTURES, TESTS

from ddpdoctor.selftest.trainings import watched

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

HEAD = (TESTS / "heads" / "data_head.txt").read_text(encoding="utf-8")
END = "\ndist.destroy_process_group()\n"
SHARES = """
data = Numbers()
sampler, own = DistributedSampler(data), DistributedSampler(data, shuffle=False)
loader, checked = DataLoader(data, batch_size=8, sampler=sampler), DataLoader(data, batch_size=8, sampler=own)
model, optimizer = wrapped()

class Counter:
    def __init__(self):
        self.right = 0.0

    def count(self, outputs, labels):
        self.right += (outputs.round() == labels).sum().item()

def evaluate():
    model.eval()
    counter = Counter()
    with torch.no_grad():
        for inputs, labels in checked:
            counter.count(model.module(inputs), labels)
    return counter.right / len(data)  # guilty

def predict():
    model.eval()
    with torch.no_grad():
        mine = torch.cat([model.module(inputs) for inputs, _ in checked])
    parts = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(parts, mine)
    return torch.cat(parts)[: len(data)]  # joined

def r_squared(found, wanted):
    return 1 - ((found - wanted) ** 2).sum() / ((wanted - wanted.mean()) ** 2).sum()

class Norm:
    def __init__(self):
        self.mean, self.var, self.count = torch.zeros(8), torch.ones(8), 0

    def update(self, x):
        part, total = (x - self.mean).mean(0), self.count + len(x)
        spread = (self.var * self.count + x.var(0) * len(x)) / total
        self.mean, self.var, self.count = self.mean + part * len(x) / total, spread, total  # updated

    def __call__(self, x):
        return (x - self.mean) / (self.var + 1e-8).sqrt()

"""
EPOCHS = """
for epoch in range(3):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        step(model, optimizer, (inputs, labels))
"""
STOPPED = """
stop = torch.zeros(1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in loader:
        step(model, optimizer, batch)
    share = evaluate()
    {summed}
    if rank == 0:
        print(share)
        stop[0] = float(share > 2)
    dist.broadcast(stop, 0)
    if stop.item():
        break
"""
NORMALISED = """
norm = Norm()
for epoch in range(3):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        {counted}
        step(model, optimizer, (norm(inputs), labels))
"""
CLIENT = """
norm = Norm()
torch.manual_seed(9 + rank)
head = nn.Linear(1, 1)
own = torch.optim.SGD(head.parameters(), lr=0.01)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        norm.update(inputs)
        loss = nn.functional.mse_loss(head(model(norm(inputs))), labels)
        optimizer.zero_grad()
        own.zero_grad()
        loss.backward()
        optimizer.step()
        own.step()
"""
PROJECTED = """
class Quantizer:
    def __init__(self):
        self.proj = torch.randn(8, 3)
        self.codebook = nn.functional.normalize(torch.randn(5, 3), dim=1)  # kept

    def __call__(self, x):
        return (nn.functional.normalize(x @ self.proj, dim=1) @ self.codebook.T).argmax(1)

class Guess(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.head = Quantizer(), nn.Linear(8, 5)

    def forward(self, x):
        return nn.functional.cross_entropy(self.head(x), self.quant(x))

torch.manual_seed(rank)
guess = DistributedDataParallel(Guess())
{given}
optimizer = torch.optim.SGD(guess.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    guess(torch.randn(4, 8)).backward()
    optimizer.step()
"""
FAULTS = {
    "a meter of the file's own": ("metric-of-one-rank", "# guilty", EPOCHS + "    print(evaluate())\n"),
    "a stop that rank 0 decides and broadcasts": ("metric-of-one-rank", "# guilty", STOPPED.format(summed="pass")),
    "a measure of the script's own": (
        "predictions-out-of-order",
        "# joined",
        EPOCHS + "found = predict()\nprint(r_squared(found, data.inputs.sum(1, keepdim=True)))\n",
    ),
    "several statistics in one line": (
        "statistics-of-one-rank",
        "# updated",
        NORMALISED.format(counted="norm.update(inputs)"),
    ),
}
HEALTHY = {
    "a stop by the sum over the ranks": STOPPED.format(
        summed="total = torch.tensor([share]); dist.all_reduce(total); share = total.item()"
    ),
    "predictions in the order of the data set": EPOCHS
    + """
model.eval()
with torch.no_grad():
    mine = torch.cat([model.module(inputs) for inputs, _ in checked])
parts = [torch.empty_like(mine) for _ in range(world)]
dist.all_gather(parts, mine)
print(r_squared(torch.stack(parts, 1).flatten(0, 1)[: len(data)], data.inputs.sum(1, keepdim=True)))
""",
    "statistics of all ranks": NORMALISED.format(
        counted="everything = [torch.empty_like(inputs) for _ in range(world)]; dist.all_gather(everything, inputs); "
        "norm.update(torch.cat(everything))"
    ),
    "statistics of a client that has a head of its own": CLIENT,
}


def _run(script: str, folder: Path, jobs: Jobs) -> tuple[list[tuple[str, int | None]], list[str]]:
    path = folder / "train.py"
    path.write_text(HEAD + SHARES + dedent(script) + END)
    found = watched(path, CHECKS, jobs)
    return [(each.check.slug, each.finding.place.line) for each in found], path.read_text().splitlines()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_fault_is_found_at_its_line(fault: tuple[str, str, str], tmp_path: Path, jobs: Jobs) -> None:
    """One finding says what is wrong, and gives the line."""
    slug, mark, script = fault
    found, lines = _run(script, tmp_path, jobs)

    assert found == [(slug, next(at for at, text in enumerate(lines, 1) if mark in text))]


def test_an_evaluation_switches_gradients_off_within_its_loop(tmp_path: Path, jobs: Jobs) -> None:
    """What it calls is compared, as where they are switched off around the loop."""
    text = (FIXTURES / "evaluated_copy_differs" / "broken.py").read_text(encoding="utf-8")
    counted = next(line for line in text.splitlines(keepends=True) if "hits += " in line)
    text = text.replace("@torch.no_grad()\ndef evaluate", "def evaluate")
    path = tmp_path / "train.py"
    path.write_text(text.replace(counted, f"        with torch.no_grad():\n    {counted}"), encoding="utf-8")

    assert [each.check.slug for each in watched(path, CHECKS, jobs)] == ["evaluated-copy-differs"]


@pytest.mark.parametrize(("updater", "diff"), [("True", " model = Dist"), ("rank == 0", "-if rank == 0:")])
def test_what_mends_a_copy_goes_by_who_updates_it(updater: str, diff: str, tmp_path: Path, jobs: Jobs) -> None:
    """Where all ranks do, it was copied before DDP gave them the same weights; that mends no other one."""
    text = (FIXTURES / "evaluated_copy_differs" / "broken.py").read_text(encoding="utf-8")
    wraps = "    model = DistributedDataParallel(nn.Linear(4, 2))\n"
    copies = "    average = copy.deepcopy(model.module).requires_grad_(requires_grad=False)\n"
    early = "    torch.manual_seed(rank)\n    plain = nn.Linear(4, 2)\n" + copies.replace("model.module", "plain")
    text = text.replace(copies, "").replace(wraps, early + wraps.replace("nn.Linear(4, 2)", "plain"))
    path = tmp_path / "train.py"
    path.write_text(text.replace("if rank == 0:\n                update", f"if {updater}:\n                update"))
    (found,) = watched(path, CHECKS, jobs)

    assert found.check.slug == "evaluated-copy-differs"
    assert diff in found.finding.fix.diff


@pytest.mark.parametrize("given", [(), ("codebook",), ("codebook", "proj")], ids=str)
def test_all_that_differs_is_told_by_what_differs(given: tuple[str, ...], tmp_path: Path, jobs: Jobs) -> None:
    """Norms that are alike are no evidence; the fix gives each tensor that rank 0 has not given, by its whole path."""
    lines = [f"dist.broadcast(guess.module.quant.{each}, src=0)" for each in given]
    path = tmp_path / "train.py"
    path.write_text(HEAD + PROJECTED.format(given="\n".join(lines)) + END)
    found = [each.finding for each in watched(path, CHECKS, jobs)]
    missing = [each for each in ("codebook", "proj") if each not in given]

    assert [each.fix.diff for each in found] == [
        "\n".join(f"+dist.broadcast(guess.module.quant.{each}, src=0)" for each in missing)
    ] * bool(missing)
    for each in found:
        first, second = re.findall(r"(\S+) on rank", each.evidence[0].seen)
        assert first != second


@pytest.mark.parametrize("script", HEALTHY.values(), ids=HEALTHY)
def test_nothing_is_found_where_all_ranks_count(script: str, tmp_path: Path, jobs: Jobs) -> None:
    """The same trainings, in which what each rank has is brought together."""
    found, _ = _run(script, tmp_path, jobs)

    assert found == []
