"""What was found in a watched training, as Markdown."""

from __future__ import annotations

from ddpdoctor.findings import Evidence, Finding, Fix, Place, Report, Result, Severity, Status
from ddpdoctor.report.markdown import watched_markdown

FINDING = Finding(
    "rank 0 waits for <rank 1>",
    (Evidence("61% of the time", "none", "rank 0"),),
    Fix("leave it out", diff="-dist.barrier()"),
    Place(file="train.py", line=3),
    severity=Severity.NOTE,
)
RESULT = Result("DDP906", "blocking-calls-in-step", "performance", "Title", Status.FAILED, (FINDING,))


def test_a_report_has_each_finding_with_its_fix_and_where_the_steps_went() -> None:
    """Nothing of it is markup that a program has printed."""
    text = watched_markdown(Report((RESULT,)), "Watched 2 ranks.", ["Where a step goes:", "  0  12 ms"])
    assert text.startswith("**ddpdoctor: Nothing wrong was found; 1 note.** Watched 2 ranks.")
    assert "### note `DDP906` blocking-calls-in-step" in text
    assert "rank 0 waits for \\<rank 1\\>" in text
    assert "Where: train.py:3" in text
    assert "```diff\n-dist.barrier()\n```" in text
    assert "```\nWhere a step goes:\n  0  12 ms\n```" in text


def test_a_report_of_nothing_says_so() -> None:
    """One line, and no table of steps where none was timed."""
    passed = Result("DDP906", "blocking-calls-in-step", "performance", "Title", Status.PASSED)
    assert watched_markdown(Report((passed,)), "Watched 1 rank.", []) == (
        "**ddpdoctor: Nothing wrong was found.** Watched 1 rank.\n"
    )
