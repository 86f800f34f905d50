"""``ddpdoctor monitor``: the monitor that ``ddpdoctor.install()`` starts; users do not type it."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click

from ddpdoctor.cli.run import printer
from ddpdoctor.registry import load_checks

FIRST = 60.0  # seconds for the first rank to show itself


@click.command(hidden=True)
def monitor() -> None:
    """Follow the ranks of the session that the environment names, until the last one is gone."""
    from ddpdoctor.watch.monitor.monitor import Monitor
    from ddpdoctor.watch.reporting import summary, write_report
    from ddpdoctor.watch.run import POLL, is_serious
    from ddpdoctor.watch.settings import inherited
    from ddpdoctor.watch.stale_sessions import held

    settings = inherited()
    if settings is None:
        raise click.UsageError("it is started by ddpdoctor.install()")
    started = time.monotonic()
    monitor = Monitor(settings, load_checks(), printer(settings.on_finding))
    stopped = False
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, settings.session, ignore_errors=True)
        stack.enter_context(held(Path(settings.session)))
        while monitor.ranks.alive() or (not monitor.ranks.pids() and time.monotonic() - started < FIRST):
            monitor.poll()
            if settings.on_finding == "raise" and not stopped and is_serious(monitor):
                stopped = True
                monitor.stop_ranks(summary(monitor))
                if monitor.hung:
                    monitor.ranks.send(signal.SIGTERM)
            time.sleep(POLL)
        monitor.end(0)
        if settings.report:
            write_report(settings.report, monitor, time.monotonic() - started)
    sys.exit(0)
