"""A collective over gloo fails or gives a wrong answer on this machine.

Every collective that torch.distributed offers (broadcast, all_reduce, reduce, all_gather, gather, scatter,
reduce_scatter, all_to_all, all_gather_object, send and receive in a ring, barrier) is run once on real ranks over
loopback, on numbers whose answer is known. A wrong or missing answer means that no training over gloo can be
trusted here, whatever the script does.

Why it happens: a damaged or mixed installation of torch (two versions in one environment, a libtorch on
LD_LIBRARY_PATH or LD_PRELOAD that is not the wheel's), a loopback interface that is down, or a sandbox that
forbids sockets between processes.

To be sure, create a fresh virtual environment, install the same torch there and run `ddpdoctor check --only
collectives` in it: if it passes there, the installation is at fault, otherwise the machine.

Collectives that the gloo of the installed torch does not implement (reduce_scatter and all_to_all in older
releases) are left out. Holds for torch 2.2 and later; seen with torch 2.13 (CPU build).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Finding, Fix, NotRun, Severity
from ddpdoctor.check import probe

from ._exercise import exercise
from ._verdict import failures, wrong_answers

if TYPE_CHECKING:
    from ddpdoctor.probe.jobs import Jobs

CARD = Card("DDP701", Severity.ERROR)


@probe
def over_loopback(jobs: Jobs, backends: tuple[str, ...]) -> Iterator[Finding]:
    """Run every collective on real ranks."""
    if "gloo" not in backends:
        raise NotRun("--backend leaves gloo out")
    outcomes = jobs.run(exercise, "cpu", backend="gloo")
    if failed := failures(outcomes):
        yield Finding(f"the collectives over gloo did not end on {len(failed)} of {len(outcomes)} ranks", failed, FRESH)
        return
    if wrong := wrong_answers(outcomes):
        names = ", ".join(dict.fromkeys(evidence.seen.split()[0] for evidence in wrong))
        yield Finding(f"wrong answers over gloo from: {names}", wrong, FRESH)


FRESH = Fix(
    "install torch into a fresh virtual environment and check again there",
    command="python3 -m venv fresh && fresh/bin/pip install torch ddpdoctor && "
    "fresh/bin/ddpdoctor check --only collectives",
)
