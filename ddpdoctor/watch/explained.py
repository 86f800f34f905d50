"""The explanation of a live exception: what the checks say of it, as a note on it."""

from __future__ import annotations

import os
import time
import traceback

from ddpdoctor.watch.events import Failed
from ddpdoctor.watch.judge import Found, Judge
from ddpdoctor.watch.users import innermost


def explain(exc: BaseException, rank: int | None, unused: tuple[str, ...] = ()) -> None:
    """Add what the checks know as a note (Python 3.11 and later; before, the monitor alone tells it)."""
    text = note(explanations(exc, rank, unused))
    if text and hasattr(exc, "add_note"):
        exc.add_note(text)


def explanations(exc: BaseException, rank: int | None, unused: tuple[str, ...]) -> list[Found]:
    """Ask the watch facets first, which know the names; then the signs, which know the message."""
    from ddpdoctor.registry import load_checks

    checks = load_checks()
    text = "".join(traceback.format_exception(exc))
    failed = Failed(
        pid=os.getpid(),
        time=time.time(),
        rank=rank,
        site=innermost(exc),
        error=type(exc).__name__,
        text=text,
        unused=unused,
    )
    return list(Judge(checks).see(failed))


def note(found: list[Found]) -> str:
    """Render findings as the lines of a note."""
    from ddpdoctor.report.text import printable

    lines = []
    for check, finding in found:
        lines.append(f"\nddpdoctor {check.code} {check.slug}: {finding.message}")
        lines.append(f"  fix: {finding.fix.summary}")
        lines += [f"    {line}" for line in (*finding.fix.command.splitlines(), *finding.fix.diff.splitlines())]
    return printable("\n".join(lines))
