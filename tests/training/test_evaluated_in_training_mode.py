"""What only training mode returns is evaluated in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers import CHECKS, FIXTURES

from ddpdoctor.selftest.trainings import watched

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.jobs.pool import Jobs

BROKEN = (FIXTURES / "evaluated_in_training_mode" / "broken.py").read_text(encoding="utf-8")
DETECTOR = """
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, inputs, targets=None):
        found = self.body(inputs)
        return nn.functional.cross_entropy(found, targets) if self.training else found.argmax(1)


EPOCHS = 3
"""
MODEL = "nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))"
EDITS = (
    ("EPOCHS = 3\n", DETECTOR),
    ("hits = (model(inputs).argmax(1) == targets).sum()", "hits = model(inputs, targets) * len(targets)"),
    (f"DistributedDataParallel({MODEL})", "DistributedDataParallel(Detector())"),
    ("nn.functional.cross_entropy(model(batch), targets).backward()", "model(batch, targets).backward()"),
)


def test_the_losses_of_a_detector_are_asked_for_in_training_mode(tmp_path: Path, jobs: Jobs) -> None:
    """A validation loss that the model returns in no other mode is no mistake."""
    text = BROKEN
    for old, new in EDITS:
        assert old in text, old
        text = text.replace(old, new)
    path = tmp_path / "train.py"
    path.write_text(text)

    assert [each.finding.message for each in watched(path, CHECKS, jobs)] == []
