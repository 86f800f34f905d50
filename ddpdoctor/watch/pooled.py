"""A script that runs on ranks of the warm pool, watched from beside them."""

from __future__ import annotations

import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.watch.monitor.monitor import Monitor
from ddpdoctor.watch.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from ddpdoctor.facets import Check
    from ddpdoctor.jobs.outcome import Outcome
    from ddpdoctor.jobs.pool import Jobs
    from ddpdoctor.watch.dispatcher import Found

POLL = 0.05  # seconds
PROFILED = 25  # steps that are measured closely
AROUND = "ddpdoctor.watch.rank.script:watched_script"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A script, its arguments, how many ranks run it for how many seconds, and when they count as stuck.

    ``around`` (``module:name``) is the watch, or what holds it.
    """

    script: Path
    argv: Sequence[str] = ()
    ranks: int = 2
    deadline: float = 20.0
    hang_after: float = 30.0
    around: str = AROUND


class Watched(NamedTuple):
    """How each rank ended, what the watch found, and what share of the time a rank waited for a core as it trained."""

    outcomes: tuple[Outcome, ...]
    found: list[Found]
    starved: float


def watch_in_pool(
    launch: Launch, checks: Iterable[Check], jobs: Jobs, enough: Callable[[list[Found]], bool]
) -> Watched:
    """Return what came of a script; the ranks are killed once what the watch found is ``enough``.

    Raises:
        NotRun: the pool cannot run anything.
        ServerLostError: its server is gone.
    """
    with tempfile.TemporaryDirectory(prefix="ddpdoctor-") as folder, ThreadPoolExecutor(1) as thread:
        settings = Settings(session=folder, hang_after=launch.hang_after, profile=PROFILED)
        environ: dict[str, str] = {}
        settings.export(environ)
        monitor = Monitor(settings, checks, lambda _: None)
        job = thread.submit(
            jobs.run_script,
            launch.script,
            *launch.argv,
            ranks=launch.ranks,
            deadline=launch.deadline,
            environ=environ,
            around=launch.around,
        )
        while not job.done():
            monitor.poll()
            if enough(monitor.found):
                monitor.ranks.send(signal.SIGKILL)
            wait([job], POLL)
        outcomes = job.result()
        monitor.end(0)
    return Watched(outcomes, monitor.found, max((each.starved for each in monitor.steps), default=0.0))
