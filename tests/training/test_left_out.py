"""How a module that nobody wraps comes to be averaged: by its own name, and in the framework's words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from ddpdoctor.checks.model._words import made_later
from ddpdoctor.checks.model.gradients.exchange._left_out import wrap_as_well
from ddpdoctor.frameworks import IGNITE, LIGHTNING, RAY, TRAINER, Framework
from ddpdoctor.watch.events import ParametersHeld, Site

if TYPE_CHECKING:
    from ddpdoctor.watch.training import Training

NAMES = ("body.weight", "parameter 1 of shape [1, 4]")
SCRIPT = """class Mine(Trainer):
    def __init__(self, **kwargs):
        self.recon = nn.Linear(4, 1)

    def create_optimizer(self):
        optimizer = super().create_optimizer()
        optimizer.add_param_group({"params": list(self.recon.parameters())})
"""


class _Training:
    def __init__(self, framework: Framework | None) -> None:
        self.framework = framework

    def of(self, *_: object, **__: object) -> list[object]:
        return []


@pytest.mark.parametrize(
    ("framework", "diff"),
    [
        (None, " self.recon = nn.Linear(4, 1)\n+self.recon = DDP(self.recon)"),
        (RAY, " self.recon = nn.Linear(4, 1)\n+self.recon = ray.train.torch.prepare_model(self.recon)"),
        (IGNITE, " self.recon = nn.Linear(4, 1)\n+self.recon = idist.auto_model(self.recon)"),
        (
            TRAINER,
            "-self.recon = nn.Linear(4, 1)\n+model.recon = nn.Linear(4, 1)\n trainer = Trainer(model=model, ...)",
        ),
    ],
)
def test_a_module_that_joins_an_optimizer_has_a_name(tmp_path: Path, framework: Framework | None, diff: str) -> None:
    """The line that adds its parameters says what holds them."""
    (path := tmp_path / "train.py").write_text(SCRIPT)
    held = ParametersHeld(
        pid=1, rank=0, time=0.0, site=Site(str(path), 7, "create_optimizer"), optimizer=0, kind="AdamW", names=NAMES,
        sizes=(4, 4), managed=(0, -1), constant=(False, False), holders=("", ""),
    )  # fmt: skip

    fix = wrap_as_well(cast("Training", _Training(framework)), [NAMES[1]], held)

    assert fix.diff == diff


def test_what_lightning_wraps_is_made_in_its_own_hook() -> None:
    """Elsewhere it is made before the line that wraps."""
    late = made_later(cast("Training", _Training(LIGHTNING)))

    assert late is not None
    assert "+def configure_model(self):" in late.diff
    assert made_later(cast("Training", _Training(TRAINER))) is None
