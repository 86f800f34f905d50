"""``ddpdoctor selftest``: each check's patient and control, really run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from queue import SimpleQueue
from typing import TYPE_CHECKING

import click

from ddpdoctor.check import Check, Instrument
from ddpdoctor.cli.interrupt import ending_on_signals
from ddpdoctor.cli.select import select
from ddpdoctor.model import Result, Status
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.trial import Trial

POOLS = 2  # a job of two ranks leaves two cores idle for a third of its time


@click.command()
@click.argument("checks", nargs=-1, metavar="[CHECK|AREA]...")
@click.option("--verbose", is_flag=True, help="Also show what was found in each patient.")
def selftest(checks: tuple[str, ...], *, verbose: bool) -> None:
    """Run each check on a broken case and on its healthy twin, on this machine."""
    every = load_checks()
    chosen = select(every, ",".join(checks), "CHECK") if checks else every
    started = time.monotonic()
    verdicts: list[str] = []
    for trial in chain(_in_jobs(chosen, every), _in_logs(chosen, every)):
        verdicts.append(trial.verdict)
        other = "" if trial.instrument == "probe" else f" ({trial.instrument})"
        click.echo(f"{trial.verdict:8}{trial.check.code}  {trial.check.slug}{other}")
        for name, result in (("patient", trial.patient), ("control", trial.control)):
            if trial.verdict != "ok" or (verbose and name == "patient"):
                click.echo(f"          {name}: {_said(result)}")
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("ok", "wrong", "not run"))
    click.echo(f"{counts}; {time.monotonic() - started:.1f} s")
    sys.exit(1 if "wrong" in verdicts else 0)


def _in_logs(chosen: tuple[Check, ...], every: tuple[Check, ...]) -> Iterator[Trial]:
    from ddpdoctor.explain.selftest import try_logs

    return (try_logs(check, every) for check in chosen if check.of(Instrument.SIGN))


def _in_jobs(chosen: tuple[Check, ...], every: tuple[Check, ...]) -> Iterator[Trial]:
    """Try the checks that have a probe or watch, on a few pools at once; without such a check none is started."""
    from ddpdoctor.probe.facts import gather
    from ddpdoctor.probe.jobs import Jobs
    from ddpdoctor.probe.selftest import try_check
    from ddpdoctor.watch.selftest import try_watch

    trials = [
        (check, instrument)
        for instrument in (Instrument.PROBE, Instrument.WATCH)
        for check in chosen
        if check.of(instrument)
    ]
    if not trials:
        return
    with ending_on_signals(), ExitStack() as stack:
        facts = gather()
        pools: SimpleQueue[Jobs] = SimpleQueue()
        for _ in range(POOLS):
            pools.put(stack.enter_context(Jobs(2, facts.environ)))

        def run(trial: tuple[Check, Instrument]) -> Trial:
            pool = pools.get()
            check, instrument = trial
            try:
                return (
                    try_check(check, facts, pool) if instrument is Instrument.PROBE else try_watch(check, every, pool)
                )
            finally:
                pools.put(pool)

        workers = ThreadPoolExecutor(POOLS)
        stack.callback(workers.shutdown, wait=False, cancel_futures=True)
        yield from workers.map(run, trials)


def _said(result: Result) -> str:
    if result.status is Status.FAILED:
        return "; ".join(finding.message for finding in result.findings)
    return f"{result.status.value}{f', because {result.reason}' if result.reason else ''}"
