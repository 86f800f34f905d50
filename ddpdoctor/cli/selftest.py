"""``ddpdoctor selftest``: each check's broken case and healthy twin, really run."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain
from queue import SimpleQueue
from typing import TYPE_CHECKING

import click

from ddpdoctor.cli.options.required import require_torch
from ddpdoctor.cli.options.values import CHECKS
from ddpdoctor.cli.screen.interrupt import ending_on_signals
from ddpdoctor.cli.screen.terminal import say, style
from ddpdoctor.facets import Check, Instrument
from ddpdoctor.findings import Result, Status
from ddpdoctor.registry import load_checks
from ddpdoctor.report.text import printable
from ddpdoctor.selftest.beside import beside
from ddpdoctor.selftest.result import left_out, takes_long

if TYPE_CHECKING:
    from ddpdoctor.report.style import Style
    from ddpdoctor.selftest.result import SelfTestResult

NOTHING_RUN = 2  # the exit status where no case could be run
IN_RANKS = ("ddpdoctor.watch.rank.script", "ddpdoctor.examine.model.rank", "ddpdoctor.selftest.probes")
POOLS = 4
WAITERS = 4  # pools beside them, for cases that hang: until they are told they wait, and compute nothing


@click.command()
@click.argument("checks", nargs=-1, type=CHECKS, metavar="[AREA|CHECK]...")
@click.option("--all", "every_case", is_flag=True, help="Also run the cases that take long.")
@click.option("--verbose", is_flag=True, help="Also show what was found in each broken case.")
@click.option("-q", "--quiet", is_flag=True, help="Show only what is wrong.")
def selftest(checks: tuple[tuple[Check, ...], ...], *, every_case: bool, verbose: bool, quiet: bool) -> None:
    """Test ddpdoctor here: each check on a broken and a healthy case.

    A check is ok if it finds its broken case, and nothing in the healthy one. The exit status is 1 if one is wrong, 2
    if none could be run.
    """
    every = load_checks()
    named = set(chain.from_iterable(checks))
    chosen = tuple(check for check in every if not named or check in named)
    started = time.monotonic()
    counts = Counter[str]()
    long = () if every_case or named else tuple(filter(takes_long, chosen))
    with beside(lambda: _in_texts(chosen, every), every) as read, _in_jobs(chosen, every, long) as tried:
        for trial in chain(read, tried, map(left_out, long)):
            counts[trial.verdict] += 1
            if not quiet or trial.verdict == "wrong":
                say("\n".join(_lines(trial, style(sys.stdout), verbose=verbose)))
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("ok", "wrong", "not run"))
    status = 1 if counts["wrong"] else 0 if counts["ok"] else NOTHING_RUN
    if not quiet or status == NOTHING_RUN:
        say(f"{said}; {time.monotonic() - started:.1f} s")
    sys.exit(status)


def _lines(trial: SelfTestResult, look: Style, *, verbose: bool) -> Iterator[str]:
    other = "" if trial.instrument == "probe" else f" ({trial.instrument})"
    yield f"{trial.verdict:8}{trial.check.code}  {trial.check.slug}{other}"
    for name, result in (("broken", trial.broken), ("healthy", trial.healthy)):
        if trial.verdict != "ok" or (verbose and name == "broken"):
            yield from look.wrap(f"{name}: {printable(_said(result))}", " " * 10)


def _in_texts(chosen: tuple[Check, ...], every: tuple[Check, ...]) -> Iterator[SelfTestResult]:
    """Try the checks that read logs or sources."""
    from ddpdoctor.logs.examination import examination
    from ddpdoctor.selftest.logs import try_logs
    from ddpdoctor.selftest.sources import linter, try_sources

    prepared = examination(every)
    yield from (try_logs(check, prepared) for check in chosen if check.of(Instrument.LOG))
    with linter(every) as linted:
        yield from (try_sources(check, linted) for check in chosen if check.of(Instrument.LINT))


@contextmanager
def _in_jobs(
    chosen: tuple[Check, ...], every: tuple[Check, ...], long: tuple[Check, ...]
) -> Iterator[Iterator[SelfTestResult]]:
    """Try the checks that have a probe or, if it does not take long, watch, on a few pools at once."""
    from ddpdoctor.host.facts import gather
    from ddpdoctor.jobs.pool import Jobs
    from ddpdoctor.selftest.probes import try_check
    from ddpdoctor.selftest.trainings import try_watch

    trials = [
        (check, instrument)
        for instrument in (Instrument.WATCH, Instrument.PROBE)  # what takes longest begins first
        for check in chosen
        if check.of(instrument) and not (instrument is Instrument.WATCH and check in long)
    ]
    if not trials:
        yield iter(())
        return
    require_torch("the self-test of probes and of the watch")
    with ending_on_signals(), ExitStack() as stack:
        facts = gather()
        warm = stack.enter_context(Jobs(2, facts.environ))
        pools: SimpleQueue[Jobs | Exception] = SimpleQueue()

        def open_pools() -> None:
            try:
                if warm.problem():
                    pools.put(warm)  # each job says what it is
                    return
                for _ in range(min(POOLS + WAITERS, len(trials))):
                    pools.put(stack.enter_context(warm.twin(*IN_RANKS)))
            except Exception as exc:  # noqa: BLE001 - whatever it is, nobody is to wait for a pool that never comes
                pools.put(exc)

        def run(check: Check, instrument: Instrument) -> SelfTestResult:
            pool = pools.get()
            try:
                if isinstance(pool, Exception):
                    raise pool
                return (
                    try_check(check, facts, pool) if instrument is Instrument.PROBE else try_watch(check, every, pool)
                )
            finally:
                pools.put(pool)

        workers, waiters = ThreadPoolExecutor(POOLS + 1), ThreadPoolExecutor(WAITERS)
        for executor in (workers, waiters):
            stack.callback(executor.shutdown, wait=False, cancel_futures=True)
        workers.submit(open_pools)  # torch is imported while this process goes on
        tried = [(waiters if _hangs(*trial) else workers).submit(run, *trial) for trial in trials]
        yield (each.result() for each in tried)


def _hangs(check: Check, instrument: Instrument) -> bool:
    """Whether the case is one of a hang."""
    from ddpdoctor.watch.events import Stalled

    return instrument is Instrument.WATCH and any(facet.subject is Stalled for facet in check.of(instrument))


def _said(result: Result) -> str:
    if result.status is Status.FAILED:
        return "; ".join(finding.message for finding in result.findings)
    return f"{result.status.value}{f', because {result.reason}' if result.reason else ''}"
