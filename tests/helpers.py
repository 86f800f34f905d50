"""What several tests need, and is no fixture of pytest: paths, commands, and the engine of ``ddpdoctor explain``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.facets import Instrument
from ddpdoctor.logs.examination import examination
from ddpdoctor.logs.read.sources import Origin
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.logs.answer import Answer, Named
    from ddpdoctor.logs.examination import Examination

Command = tuple[str, ...]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Port = Callable[[], str]
Script = Callable[[str], str]
ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
TORCHRUN = Path(sys.executable).with_name("torchrun")
PATIENCE = float(os.environ.get("DDPDOCTOR_TEST_PATIENCE", "100"))
"""Seconds that a command has: a night on a machine that is shared gives it more, together with ``--timeout``."""
CHECKS = load_checks()
LOGGED = tuple(check for check in CHECKS if check.of(Instrument.LOG))
PREPARED = examination(CHECKS)  # once: it is what takes the time


def answered(log: str | bytes, prepared: Examination = PREPARED) -> Answer:
    """Explain a log with all checks, or with others."""
    examined = prepared.anew()
    examined.read(Origin("train.log"), [log.encode() if isinstance(log, str) else log])
    return examined.answer()


def named(log: str) -> dict[str, Named]:
    """Return what all checks together say of a log, by slug; the first cause comes first."""
    return {each.check.slug: each for each in answered(log).named}
