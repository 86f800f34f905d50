"""Each check's ``patient.log`` and ``control.log``, explained: named first in the one, not at all in the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.explain.engine import explain
from ddpdoctor.explain.sources import Origin
from ddpdoctor.model import Result, Status
from ddpdoctor.trial import Trial, fixture

if TYPE_CHECKING:
    from ddpdoctor.check import Check
    from ddpdoctor.explain.answer import Answer, Named


def try_logs(check: Check, checks: tuple[Check, ...]) -> Trial:
    """Explain both logs with all checks there are, since signs compete."""
    patient, control = (_answer(check, f"{name}.log", checks) for name in ("patient", "control"))
    return Trial(check, _of_patient(check, patient), _of_control(check, control), "log")


def _answer(check: Check, name: str, checks: tuple[Check, ...]) -> Answer | str:
    path = fixture(check, name)
    if not path.is_file():
        return f"there is no fixture {path}"
    with path.open("rb") as lines:
        return explain([(Origin(name), lines)], checks)


def _of_patient(check: Check, answer: Answer | str) -> Result:
    if isinstance(answer, str):
        return _result(check, Status.CRASHED, reason=answer)
    first = answer.first
    if first is not None and first.check is check:
        return _result(check, Status.FAILED, first)
    instead = first.check.slug if first else "an unknown error" if answer.unknown else "nothing"
    return _result(check, Status.PASSED, reason=f"named {instead} first")


def _of_control(check: Check, answer: Answer | str) -> Result:
    if isinstance(answer, str):
        return _result(check, Status.CRASHED, reason=answer)
    named = next((each for each in answer.named if each.check is check), None)
    return _result(check, Status.FAILED, named) if named else _result(check, Status.PASSED)


def _result(check: Check, status: Status, named: Named | None = None, reason: str = "") -> Result:
    findings = (named.finding,) if named else ()
    return Result(check.code, check.slug, check.area, check.title, status, findings, reason)
