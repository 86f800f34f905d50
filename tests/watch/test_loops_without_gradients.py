"""A loop that switches gradients off for all that it does evaluates; one that does so for a part may train."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.watch.events import Site
from ddpdoctor.watch.rank.evaluation.loops import is_without_gradients

MOVED = """for x, y in tqdm(loader):
    # moved

    x, y = x.to(device), y.cuda()
    with torch.inference_mode():
        model(x)
"""
WITHIN = """    for batch in loader:
        with torch.no_grad(), autocast('cpu'):
            model(batch)
    total = 1
"""
EVALUATES = ("for x, y in loader:\n    with torch.no_grad():\n        hits += model(x)\n", MOVED, WITHIN)
TRAINS = (
    "for x, y in loader:\n    with torch.no_grad():\n        soft = teacher(x)\n    learn(x, soft)\n",
    "for x, y in loader:\n    loss = step(x, y)\n    with torch.no_grad():\n        average(model)\n",
    "for x, y in loader:\n    learner.update(x)\n    with torch.no_grad():\n        average(model)\n",
    "for x, y in loader:\n    with autocast('cpu'):\n        model(x)\n",
    "batch = next(iter(loader))\n",
    "for x, y in loader: learn(x)\n",
    "for x, y in (\n    loader):\n    with torch.no_grad():\n        model(x)\n    learn(x)\n",
)


def _site(text: str, folder: Path) -> Site:
    path = folder / "train.py"
    path.write_text(f"import torch\n\n{text}", encoding="utf-8")
    return Site(str(path), 3, "main")


@pytest.mark.parametrize("text", EVALUATES)
def test_a_loop_that_evaluates_is_known(text: str, tmp_path: Path) -> None:
    """Batches may be moved to a device before."""
    assert is_without_gradients(_site(text, tmp_path))


@pytest.mark.parametrize("text", TRAINS)
def test_a_loop_that_may_train_is_none(text: str, tmp_path: Path) -> None:
    """What stands beside the block is done with gradients."""
    assert not is_without_gradients(_site(text, tmp_path))


def test_no_line_is_none(tmp_path: Path) -> None:
    """A place without a file, as in a notebook that is gone, tells nothing."""
    assert not is_without_gradients(None)
    assert not is_without_gradients(Site(str(tmp_path / "gone.py"), 3, "main"))
