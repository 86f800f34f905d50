"""What several tests need, and is no fixture of pytest: paths, commands, and the engine of ``ddpdoctor explain``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.facets import Instrument
from ddpdoctor.logs.examination import examination
from ddpdoctor.logs.read.sources import Origin
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.logs.answer import Answer, Named
    from ddpdoctor.logs.examination import Examination
    from ddpdoctor.watch.dispatcher import Found

Command = tuple[str, ...]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Port = Callable[[], str]
Script = Callable[[str], str]
TESTS = Path(__file__).parent
ROOT = TESTS.parent
FIXTURES = ROOT / "fixtures"
TORCHRUN = Path(sys.executable).with_name("torchrun")
COLD_TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
"""Where warm ranks would not do: the parent of these is torchrun itself."""
LOAD = min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), 6.0)
"""How many processes want each processor as the tests begin: what takes a second takes so many then, about."""
PATIENCE = float(os.environ.get("DDPDOCTOR_TEST_PATIENCE", 100 * LOAD))
"""Seconds that a command has; a test that is marked to run at night has more by as much (``conftest.py``)."""
CHECKS = load_checks()
LOGGED = tuple(check for check in CHECKS if check.of(Instrument.LOG))
JOBS = ",".join(check.slug for check in CHECKS if any("jobs" in facet.needs for facet in check.facets))
BETWEEN_HOSTS = "network,rendezvous,versions-differ-between-hosts,variables-differ-between-hosts,clocks-differ"
WITHOUT_JOBS = ("--only", BETWEEN_HOSTS, "--skip", JOBS)
"""Options of ``check`` by which hosts look at each other, and none imports torch: that takes most of the time."""
PREPARED = examination(CHECKS)  # once: it is what takes the time


def answered(log: str | bytes, prepared: Examination = PREPARED) -> Answer:
    """Explain a log with all checks, or with others."""
    examined = prepared.anew()
    examined.read(Origin("train.log"), [log.encode() if isinstance(log, str) else log])
    return examined.answer()


def named(log: str) -> dict[str, Named]:
    """Return what all checks together say of a log, by slug; the first cause comes first."""
    return {each.check.slug: each for each in answered(log).named}


def wait(rank: int, seq: int, op: str = "ALLREDUCE", given: int = 1024, made: int = 1024) -> str:
    """Write a rank's time-out as torch 2.4 to 2.13 do."""
    return (
        f"[rank{rank}]:[E1012 04:10:20.831 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={given}, NumelOut={made}, Timeout(ms)=600000) "
        "ran for 600031 milliseconds before timing out.\n"
    )


def assert_only(found: Sequence[Found], slug: str, words: str, path: Path) -> None:
    """Assert that one finding alone says what is wrong, at the line of a training that is marked as guilty."""
    guilty = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "# guilty" in text)

    assert [each.check.slug for each in found] == [slug], [each.finding.message for each in found]
    ((_, finding),) = found
    assert words in finding.message
    assert (finding.place.file, finding.place.line) == (str(path), guilty)
    assert all(evidence.seen for evidence in finding.evidence)


def assert_nothing(found: Sequence[Found], path: Path) -> None:
    """Assert that no check finds anything in a training, and that both ranks have left a file at its end."""
    assert [(each.check.slug, each.finding.message) for each in found] == []
    assert sorted(each.suffix for each in path.parent.glob(f"{path.name}*")) == [".0", ".1", ".py"]
