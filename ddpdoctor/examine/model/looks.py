"""The first look at the user's model: each rank builds it, and steps once; what cannot be built is said so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.examine.blame import blame, own_frames
from ddpdoctor.examine.model import rank as model_rank
from ddpdoctor.examine.model.facts import TOO_SLOW, Description, PlainStep, Trouble
from ddpdoctor.examine.model.rank import NotAModelError, first_look
from ddpdoctor.facets import BadTarget
from ddpdoctor.jobs.outcome import Died, Outcome, Raised, Returned, Stuck

if TYPE_CHECKING:
    from ddpdoctor.examine.target import Target
    from ddpdoctor.jobs.pool import Jobs


FIRST_LOOK = 30.0  # seconds for building, and for one step of the bare model


def look_first(jobs: Jobs, model: Target, batch: Target | None) -> list[tuple[Description, PlainStep | None]]:
    """Return what each rank has built, and its step with the batch; without one, or where it was not tried, None.

    Raises:
        BadTarget: a factory raised, hung, ended the process, or gave something of no use.
        NotRun: no job can be run.
    """
    outcomes = jobs.run(first_look, model, batch, deadline=FIRST_LOOK)
    if all(isinstance(outcome, Returned) for outcome in outcomes):
        return _values(outcomes)
    stage = _stage(outcomes)
    bare = outcomes if batch is None or stage == "build_model" else jobs.run(first_look, model, None)
    for outcome in bare:
        if isinstance(outcome, Raised) and outcome.kind == NotAModelError.__name__:
            raise BadTarget(f"--model {model}: {outcome.message}")
    blame("--model", model, bare)
    if batch is None:
        return _values(bare)
    if stage == "plain_step" or any(isinstance(outcome, Died) and outcome.signal for outcome in outcomes):
        trouble = PlainStep(trouble=_end(outcomes))
        return [(description, trouble) for description, _ in _values(bare)]
    blame("--batch", batch, outcomes)
    return _values(bare)


def _values(outcomes: tuple[Outcome, ...]) -> list[tuple[Description, PlainStep | None]]:
    return [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]


def _stage(outcomes: tuple[Outcome, ...]) -> str:
    """Return the function of ``model_rank`` that a rank was in; empty when all that failed died without a trace."""
    for outcome in sorted(outcomes, key=lambda outcome: isinstance(outcome, Stuck)):
        frames = outcome.frames if isinstance(outcome, Raised) else outcome.stack if isinstance(outcome, Stuck) else ()
        for stage in ("build_model", "build_batch", "plain_step"):
            if any(frame.function == stage and frame.file == model_rank.__file__ for frame in frames):
                return stage
    return ""


def _end(outcomes: tuple[Outcome, ...]) -> Trouble:
    for outcome in outcomes:
        if isinstance(outcome, Died):
            return Trouble("Died", f"the process died by signal {outcome.signal} on rank {outcome.rank}")
    stuck = next(outcome for outcome in outcomes if isinstance(outcome, Stuck))
    return Trouble(
        TOO_SLOW, f"the step did not end in {FIRST_LOOK:.0f} s on rank {stuck.rank}", own_frames(stuck.stack)
    )
