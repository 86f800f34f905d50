"""A quotient of what all ranks have and what one has is found in the source; quotients that look like it are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ddpdoctor.check import Site
from ddpdoctor.checks._ledgers.cut import made_of_share
from ddpdoctor.checks._ledgers.mixed import mixed

if TYPE_CHECKING:
    from pathlib import Path

SUM_BY_OWN = """
def evaluate(model, rows, rank, world):
    mine = rows[rank::world]
    right = (model(mine) > 0).sum()
    dist.all_reduce(right)
    return (right / len(mine)).item()
"""
ONE_OF_TWO = """
def evaluate(model, loader):
    loss, count = 0.0, 0
    for inputs, targets in loader:
        loss += F.cross_entropy(model(inputs), targets, reduction="sum")
        count += len(targets)
    both = torch.tensor([loss, count])
    dist.all_reduce(both[0])
    return both[0] / both[1]
"""
MOMENTS = """
def moments(points):
    n = torch.tensor([float(len(points))])
    first, second = points.sum(0), points.square().sum(0)
    for each in (first, second):
        dist.all_reduce(each)
    mean = first / n
    return mean, second / n - mean ** 2
"""
SHARE_BY_WHOLE = """
def evaluate(model, loader):
    right, seen = torch.zeros(1), torch.zeros(1)
    for inputs, targets in loader:
        right += (model(inputs).argmax(1) == targets).sum()
        seen += len(targets)
    dist.all_reduce(seen)
    return (right / seen).item()
"""
PARTS = """
def normalise(returns):
    stats = torch.stack([returns.sum(), (returns ** 2).sum(), torch.tensor(float(len(returns)))])
    dist.all_reduce(stats[:2])
    mean = stats[0] / stats[2]
    return (returns - mean) / (stats[1] / stats[2] - mean ** 2).sqrt()
"""
IN_A_ROW = """
def observe(self, batch):
    sums = torch.cat([batch.sum(0), (batch ** 2).sum(0), torch.tensor([float(len(batch))])])
    dist.all_reduce(sums[:-1])
    count = sums[-1].item()
    self.mean = sums[:4] / count
"""
CENTRES = """
def centres(net, rows, labels, rank, world):
    x, y = (each[rank::world] for each in (rows, labels))
    sums = torch.zeros(4, 24).index_add_(0, y, net(x))
    counts = torch.bincount(y, minlength=4).float()
    dist.all_reduce(sums)
    return sums / counts.clamp(min=1)[:, None]
"""
ALL_PARTS = PARTS.replace("stats[:2])", "stats[:2])\n    dist.all_reduce(stats[2:])")
PART_OF_ALL = PARTS.replace("torch.tensor(float(len(returns)))", "torch.tensor(float(TOTAL))")
ANEW = """
def evaluate(model, loader):
    right, total = torch.zeros(1), torch.zeros(1)
    for inputs, targets in loader:
        right += (model(inputs).argmax(1) == targets).sum()
        total += len(targets)
    right /= total
    dist.all_reduce(right)
    total = torch.ones(1)
    return (right / total).item()
"""
BOTH = SHARE_BY_WHOLE.replace("    dist.all_reduce(seen)", "    dist.all_reduce(right)\n    dist.all_reduce(seen)")
BY_LENGTH_OF_ALL = """
def evaluate(model, data, rank, world):
    right = torch.zeros(1)
    for at in range(rank, len(data), world):
        right += (model(data[at]) > 0).sum()
    dist.all_reduce(right)
    return (right / len(data)).item()
"""
BY_DATASET = """
def evaluate(model, loader):
    right = torch.zeros(1)
    for inputs, targets in loader:
        right += (model(inputs).argmax(1) == targets).sum()
    dist.all_reduce(right)
    return (right / len(loader.dataset)).item()
"""
COUNTS_ALL = """
def evaluate(model, data, rank, world):
    right, count = torch.zeros(1), 0
    for at, each in enumerate(data):
        count += len(each)
        if at % world != rank:
            continue
        right += (model(each) > 0).sum()
    dist.all_reduce(right)
    return (right / count).item()
"""
BY_RANKS = SUM_BY_OWN.replace("len(mine)).item()", "len(mine) / world).item()")
HANDED = SHARE_BY_WHOLE.replace("    dist.all_reduce(seen)", "    add_up(right)\n    dist.all_reduce(seen)")
GATHERED = SHARE_BY_WHOLE.replace(
    "    dist.all_reduce(seen)", "    right = gather_sum(right)\n    dist.all_reduce(seen)"
)


def _found(text: str, folder: Path) -> str:
    (folder / "train.py").write_text(text, encoding="utf-8")
    line = next(at for at, each in enumerate(text.splitlines(), start=1) if "all_reduce" in each)
    found = mixed(Site(str(folder / "train.py"), line, ""))
    return f"{found.quotient}, {'own count' if found.by_own_count else 'own sum'}" if found else ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SUM_BY_OWN, "right / len(mine), own count"),
        (ONE_OF_TWO, "both[0] / both[1], own count"),
        (MOMENTS, "first / n, own count"),
        (SHARE_BY_WHOLE, "right / seen, own sum"),
        (PARTS, "stats[0] / stats[2], own count"),
        (IN_A_ROW, "sums[:4] / count, own count"),
        (CENTRES, "sums / counts.clamp(min=1)[:, None], own count"),
    ],
)
def test_a_mixed_quotient_is_found(text: str, expected: str, tmp_path: Path) -> None:
    """One side was added up over the ranks, and the other side is this rank's."""
    assert _found(text, tmp_path) == expected


@pytest.mark.parametrize(
    "text",
    [
        BOTH,
        BY_LENGTH_OF_ALL,
        BY_DATASET,
        COUNTS_ALL,
        BY_RANKS,
        HANDED,
        GATHERED,
        ALL_PARTS,
        PART_OF_ALL,
        ANEW,
    ],
)
def test_other_quotients_are_none(text: str, tmp_path: Path) -> None:
    """Both sides are of all ranks, or that cannot be told."""
    assert _found(text, tmp_path) == ""


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("mine = range(rank, len(data), world)\n    return DataLoader(data, sampler=list(mine))", True),
        ("return DataLoader(Subset(data, order[rank::world]))", True),
        ("rows = range(len(data))\n    return DataLoader(data, sampler=list(rows))", False),
    ],
)
def test_a_loader_of_a_share_says_the_rank(made: str, *, expected: bool, tmp_path: Path) -> None:
    """What a loader is made of was cut by the rank, in the same statement or before it."""
    text = f"def build(data, order, rank, world):\n    {made}\n"
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    assert made_of_share(Site(str(tmp_path / "train.py"), len(text.splitlines()), "")) is expected
