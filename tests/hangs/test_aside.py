"""Errors that a script has shown, and that no other rank waits for: of a tracker, or of an import."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.checks.collectives.hangs.reasons._swallowed import swallowed
from ddpdoctor.watch.events import Communication, ErrorSeen, Progress, Site
from ddpdoctor.watch.training import Training

TRIED = {
    "wandb.log({'loss': 1.0})": False,
    "json.dump(scores, open('scores.json', 'w'))": False,
    "import tensorboard": False,
    "train(model)": True,
    "loss(model(x)).backward()": True,
    "wandb.log({'loss': reduce(x)}); dist.all_reduce(x)": True,
}


@pytest.mark.parametrize(("tried", "counts"), TRIED.items())
def test_what_a_tracker_raises_has_skipped_nothing(tmp_path: Path, tried: str, *, counts: bool) -> None:
    """Where the lines around it call nothing that another rank can wait in."""
    head = "import json, wandb\nimport torch.distributed as dist\n\ndef train(model): ...\n\n"
    text = head + "try:\n    {}\nexcept OSError: pass\n"
    (path := tmp_path / "train.py").write_text(text.format(tried))
    training = Training()
    site = Site(str(path), 7, "<module>")
    training.add(
        ErrorSeen(pid=1, time=1.0, rank=0, site=site, error="OSError", text="OSError: gone", forwards=4, shown=True)
    )
    call = Communication(9, 2.0, "barrier", "0", "", Site(str(path), 8, "<module>"))
    ranks = (Progress(rank=0, forwards=4, recent=(call,)), Progress(rank=1, forwards=4, recent=()))

    assert (swallowed(ranks, training) is not None) is counts
