"""Examines the user's loader by one real job: built on each rank, as the training would build it."""

from __future__ import annotations

from ddpdoctor.probe.jobs import Jobs
from ddpdoctor.probe.loader_facts import LoaderExam
from ddpdoctor.probe.loader_rank import look
from ddpdoctor.probe.outcome import Raised, Returned
from ddpdoctor.probe.target import Target, blame

DEADLINE = 60.0  # seconds for building the loader and loading a few batches
REFUSED = "mutually exclusive with shuffle"


def examine_loader(jobs: Jobs, target: Target) -> LoaderExam:
    """Build and examine the loader on each rank.

    Raises:
        BadTarget: the user's own code raised, hung or left, or gave something that is no loader.
    """
    outcomes = jobs.run(look, target, deadline=DEADLINE)
    for outcome in outcomes:
        if isinstance(outcome, Raised) and outcome.kind == "ValueError" and REFUSED in outcome.message:
            return LoaderExam(str(target), (), outcome)
    blame("--loader", target, outcomes)
    return LoaderExam(str(target), tuple(each.value for each in outcomes if isinstance(each, Returned)))
