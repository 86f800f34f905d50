"""Statistics of each rank's share: the fix computes them from the samples of all ranks, in the script's own names."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.checks.model.local._variables import from_all_ranks


@pytest.mark.parametrize(
    ("code", "joined", "mended"),
    [
        ("mean, std = share.mean(0), share.std(0)", "torch.cat(parts)", "mean, std = every.mean(0), every.std(0)"),
        ("mean = torch.mean(x, dim=0)", "torch.cat(parts)", "mean = torch.mean(every, dim=0)"),
        ("mu = np.mean(xs)", "np.concatenate(parts)", "mu = np.mean(every)"),
    ],
)
def test_the_line_is_computed_from_the_samples_of_all_ranks(
    tmp_path: Path, code: str, joined: str, mended: str
) -> None:
    """The shares are joined as tensors or arrays, and take the place of the rank's own."""
    path = tmp_path / "train.py"
    path.write_text(f"{code}\n")

    diff = from_all_ranks(str(path), 1).splitlines()
    assert diff[-3:] == [f"+every = {joined}", f"-{code}", f"+{mended}"]


@pytest.mark.parametrize(
    "code",
    ["m = (a.sum() + b.sum()) / 2", "weights = counts.sum() / counts", "scale = data.abs().max()", "mean = load(path)"],
)
def test_a_line_of_other_values_is_not_rewritten(tmp_path: Path, code: str) -> None:
    """Counts are to be added up, not joined; of two names it is not known which holds samples."""
    path = tmp_path / "train.py"
    path.write_text(f"{code}\n")

    assert not from_all_ranks(str(path), 1)
