"""What is averaged over the ranks and divided by the length of the whole, as the source says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.check import Site
from ddpdoctor.checks.data.evaluation._averaged import averaging, divided_by_whole

HEAD = "import torch.distributed as dist\ndef validate(fabric, model, loader):\n    hits = count(model, loader)\n"
BROKEN = {
    "Fabric's default": "    hits = fabric.all_reduce(hits)\n    return hits / len(loader.dataset)",
    "in place": "    fabric.all_reduce(hits)\n    return hits.item() / len(loader.dataset)",
    "another name": "    total = fabric.all_reduce(hits, reduce_op='mean')\n    return total / len(loader.dataset)",
    "at once": "    return fabric.all_reduce(hits).item() / len(loader.dataset)",
    "a strategy": "    hits = self.trainer.strategy.reduce(hits)\n    return hits / len(loader.dataset)",
    "of torch": "    dist.all_reduce(hits, op=dist.ReduceOp.AVG)\n    return hits / len(loader.dataset)",
}
HEALTHY = {
    "a sum": "    hits = fabric.all_reduce(hits, reduce_op='sum')\n    return hits / len(loader.dataset)",
    "an operator": "    hits = fabric.all_reduce(hits, None, 'sum')\n    return hits / len(loader.dataset)",
    "an option": "    hits = fabric.all_reduce(hits, reduce_op=op)\n    return hits / len(loader.dataset)",
    "times the ranks": "    hits = fabric.all_reduce(hits) * fabric.world_size\n    return hits / len(loader.dataset)",
    "of the ranks": "    hits = fabric.all_reduce(hits)\n    return hits / (len(loader.dataset) / fabric.world_size)",
    "of its own share": "    hits = fabric.all_reduce(hits)\n    return hits / len(loader)",
    "the mean before": "    mean = fabric.all_reduce(hits / seen)\n    return mean, seen / len(loader.dataset)",
    "torch's sum": "    dist.all_reduce(hits)\n    return hits / len(loader.dataset)",
}


def quotient(code: str, tmp_path: Path) -> bool:
    """Whether a quotient is found on the line that reduces."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + code)
    site = Site(str(path), 4, "validate")
    call = averaging(site, by_default=True)
    return call is not None and divided_by_whole(call, site) is not None


@pytest.mark.parametrize("name", BROKEN)
def test_an_average_by_the_whole_is_found(name: str, tmp_path: Path) -> None:
    """However it is written."""
    assert quotient(BROKEN[name], tmp_path)


@pytest.mark.parametrize("name", HEALTHY)
def test_sums_and_means_of_means_are_left(name: str, tmp_path: Path) -> None:
    """Nothing is said of what is added up, or divided by what fits it."""
    assert not quotient(HEALTHY[name], tmp_path)
