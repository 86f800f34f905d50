"""A collective over gloo fails or gives a wrong answer on this machine.

## What happens

A collective over gloo gives a wrong answer, or none, between processes of this machine, on numbers whose answer is
known. No training over gloo can be trusted here, whatever the script does.

Usual causes: a damaged or mixed installation of torch (two versions in one environment, a libtorch on LD_LIBRARY_PATH
or LD_PRELOAD that is not the wheel's), a loopback interface that is down, or a sandbox that forbids sockets between
processes.

## How to be sure

ddpdoctor runs every collective that torch.distributed offers (broadcast, all_reduce, reduce, all_gather, gather,
scatter, reduce_scatter, all_to_all, all_gather_object, send and receive in a ring, barrier) once on real ranks over
loopback. Collectives that the gloo of the installed torch does not implement (reduce_scatter and all_to_all in older
releases) are left out.

Create a fresh virtual environment, install the same torch there and run `ddpdoctor check --only collectives` in it.
If it passes there, the installation is at fault, otherwise the machine.

## How to mend it

Where the installation is at fault, use the fresh environment, and take other versions of libtorch off LD_LIBRARY_PATH
and LD_PRELOAD:

    python3 -m venv fresh && fresh/bin/pip install torch ddpdoctor && fresh/bin/ddpdoctor check --only collectives

Where the machine is at fault, bring the loopback interface up (`ip link set lo up`), or allow sockets between
processes in the sandbox.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 (CPU build). Source: runs of this check itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, NotRun, Severity, probe

from ._exercise import exercise
from ._verdict import failures, wrong_answers

if TYPE_CHECKING:
    from ddpdoctor.check import Jobs

AILMENT = Ailment("DDP701", Severity.ERROR)


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
