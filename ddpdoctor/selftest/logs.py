"""Each check's ``broken.log`` and ``healthy.log``, explained: named first in the one, not at all in the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.findings import Result, Status
from ddpdoctor.logs.read.sources import Origin
from ddpdoctor.selftest.result import SelfTestResult, fixture

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.logs.answer import Answer, Named
    from ddpdoctor.logs.examination import Examination


def try_logs(check: Check, prepared: Examination) -> SelfTestResult:
    """Explain both logs, by an examination for all checks there are, since log patterns compete."""
    broken, healthy = (_answer(check, f"{name}.log", prepared) for name in ("broken", "healthy"))
    return SelfTestResult(check, _of_broken(check, broken), _of_healthy(check, healthy), "log")


def _answer(check: Check, name: str, prepared: Examination) -> Answer | str:
    path = fixture(check, name)
    if not path.is_file():
        return f"there is no fixture {path}"
    examined = prepared.anew()
    with path.open("rb") as lines:
        examined.read(Origin(name), lines)
    return examined.answer()


def _of_broken(check: Check, answer: Answer | str) -> Result:
    if isinstance(answer, str):
        return _result(check, Status.CRASHED, reason=answer)
    first = answer.first
    if first is not None and first.check is check:
        return _result(check, Status.FAILED, first)
    instead = first.check.slug if first else "an unknown error" if answer.unknown else "nothing"
    return _result(check, Status.PASSED, reason=f"named {instead} first")


def _of_healthy(check: Check, answer: Answer | str) -> Result:
    if isinstance(answer, str):
        return _result(check, Status.CRASHED, reason=answer)
    named = next((each for each in answer.named if each.check is check), None)
    return _result(check, Status.FAILED, named) if named else _result(check, Status.PASSED)


def _result(check: Check, status: Status, named: Named | None = None, reason: str = "") -> Result:
    findings = (named.finding,) if named else ()
    return Result(check.code, check.slug, check.area, check.title, status, findings, reason)
