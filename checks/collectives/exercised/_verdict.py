"""From the outcomes of a job to evidence, the same for every check of this area."""

from __future__ import annotations

from ddpdoctor.check import Died, Evidence, Outcome, Raised, Returned, Stuck


def failures(outcomes: tuple[Outcome, ...]) -> tuple[Evidence, ...]:
    """Return the evidence of the ranks that did not return, those that failed by themselves first."""
    order = sorted(outcomes, key=lambda outcome: isinstance(outcome, Stuck))
    return tuple(
        Evidence(_said(outcome), "the rank returns", f"rank {outcome.rank}")
        for outcome in order
        if not isinstance(outcome, Returned)
    )


def wrong_answers(outcomes: tuple[Outcome, ...]) -> tuple[Evidence, ...]:
    """Return the evidence of the ranks that returned what ``exercise`` found wrong."""
    return tuple(
        Evidence(f"{name} gave {text}", "the right answer", f"rank {outcome.rank}")
        for outcome in outcomes
        if isinstance(outcome, Returned)
        for name, text in outcome.value.items()
    )


def _said(outcome: Outcome) -> str:
    match outcome:
        case Raised(kind=kind, message=message):
            return f"raised {kind}: {' '.join(message.split())[:400]}"
        case Died(signal=None, exitcode=code, output=output):
            return f"ended with exit status {code}: {_last_line(output)}"
        case Died(signal=number, output=output):
            return f"died by signal {number}: {_last_line(output)}"
        case Stuck(stack=stack):
            where = f"{stack[0].function} ({stack[0].file}:{stack[0].line})" if stack else "an unknown place"
            return f"still waiting in {where}"
        case _:
            return "returned"


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1][:400] if lines else "no output"
