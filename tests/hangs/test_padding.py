"""The padding that is offered is along the dimension that differs, in the words of the line that gathers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.check import Site
from ddpdoctor.checks.collectives.unequal.sizes._padding import dimensions_that_differ, padded, padded_by_accelerate


@pytest.mark.parametrize(
    ("ours", "theirs", "dimensions"),
    [
        ("[4, 10] int64", "[4, 11] int64", (1,)),
        ("[4, 10], [4, 10] int64", "[4, 11], [4, 11] int64", (1,)),
        ("[3, 8]", "[4, 8]", (0,)),
        ("[3, 8]", "[4, 9]", (0, 1)),
        ("[3]", "[3, 1]", ()),
    ],
)
def test_the_dimension_that_differs_is_padded(ours: str, theirs: str, dimensions: tuple[int, ...]) -> None:
    """Tensors of another number of dimensions cannot be padded to each other."""
    assert dimensions_that_differ(ours, theirs) == dimensions


def test_a_tensor_of_torch_is_padded_there() -> None:
    """Zeros are added behind, as functional.pad counts: from the last dimension."""
    assert "x.shape[1]" in padded((1,)).diff
    assert "(x.dim() - 2)" in padded((1,)).diff
    assert "x.shape[0]" in padded(()).diff


def test_accelerate_pads_what_the_line_gathers(tmp_path: Path) -> None:
    """The names of the line are used, where what is gathered has names."""
    path = tmp_path / "train.py"
    path.write_text("p, r = acc.gather_for_metrics((preds, refs))\np = acc.gather(model(x))\n")
    several, computed = (padded_by_accelerate(Site(str(path), line, "main"), (1,)).diff for line in (1, 2))

    assert several.startswith("+preds, refs = acc.pad_across_processes((preds, refs), dim=1)\n")
    assert computed.startswith("+tensor = acc.pad_across_processes(tensor, dim=1)\n")
