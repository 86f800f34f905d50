"""The examination of the user's model: a few small real jobs, whose result all checks of models read."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.examine.model.ddp import wrapped_steps
from ddpdoctor.examine.model.facts import Description, Entry, Parity, Plain, PlainStep
from ddpdoctor.examine.model.looks import FIRST_LOOK, look_first
from ddpdoctor.examine.model.parity import compare
from ddpdoctor.examine.model.rank import alike
from ddpdoctor.examine.model.steps import READY_TWICE, UNUSED, Steps
from ddpdoctor.facets import NotRun
from ddpdoctor.jobs.outcome import Outcome, Raised, Returned, Stuck
from ddpdoctor.jobs.pool import ServerLostError
from ddpdoctor.source.training.sets import has_sets
from ddpdoctor.source.training.wraps.wrapping import Source, read_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddpdoctor.examine.target import Target
    from ddpdoctor.jobs.pool import Jobs

NO_BATCH = "no --batch given"
PATIENCE = 20.0  # seconds for a few steps under DDP, and
HASH_SEEDS = (1, 2)  # two names come in the same order with half of them
SLOWER = 6.0  # times what the first look took
CURES = {UNUSED: "find_unused_parameters", READY_TWICE: "static_graph"}


@dataclass(frozen=True, slots=True)
class ModelExam:
    """The user's model as each rank built it (``ranks``, in rank order), its file, and what steps with it showed.

    ``seeded`` is the model of ranks that are seeded alike, where tensors of it are not the same on all ranks.
    ``reordered`` are the names of its parameters where another hash seed of the process brings them into another order.
    """

    target: Target
    batch: Target | None
    ranks: tuple[Description, ...]
    source: Source
    taken: Steps | None = None
    seeded: tuple[Description, ...] = ()
    reordered: tuple[str, ...] = ()

    @property
    def apart(self) -> dict[str, tuple[Plain, ...]]:
        """The tensors that are not registered and not the same on all ranks, by rank, by where they are."""
        return _apart(self.ranks)

    @property
    def buffers_apart(self) -> dict[str, tuple[Plain, ...]]:
        """The buffers that a step under DDP has left unlike on the ranks, by rank, by where they are."""
        wrapped = self.taken.wrapped if self.taken is not None else ()
        left = [outcome.value for outcome in wrapped if isinstance(outcome, Returned)]
        return _rows(left) if left and len(left) == len(wrapped) else {}

    @property
    def apart_though_seeded(self) -> frozenset[str]:
        """Those that are not the same on ranks that are seeded alike."""
        return frozenset(_apart(self.seeded) if self.seeded else {})

    @property
    def model(self) -> Description:
        """The model of rank 0."""
        return self.ranks[0]

    @property
    def state(self) -> tuple[Entry, ...]:
        """The tensors of the state dict of rank 0."""
        return self.ranks[0].state

    @property
    def steps(self) -> Steps:
        """What steps with the example batch showed.

        Raises:
            NotRun: no batch was named.
        """
        if self.taken is None:
            raise NotRun(NO_BATCH, wants="batch")
        return self.taken


def examine_model(jobs: Jobs, model: Target, batch: Target | None) -> ModelExam:
    """Build the model on real ranks and, with a batch, train it a little: bare, under DDP, and with the whole batch.

    Raises:
        BadTarget: a factory raised, hung, ended the process, is not there or gave something of no use.
        NotRun: no job can be run.
    """
    started = time.monotonic()
    looks = look_first(jobs, model, batch)
    patience = PATIENCE + SLOWER * (time.monotonic() - started)
    ranks = tuple(description for description, _ in looks)
    exam = ModelExam(model, batch, ranks, read_source(ranks[0].source))
    if exam.apart:
        seeded = jobs.run(alike, model, deadline=FIRST_LOOK)
        exam = replace(exam, seeded=tuple(each.value for each in seeded if isinstance(each, Returned)))
    exam = replace(exam, reordered=_reordered(jobs, model, ranks[0]))
    plain = tuple(step for _, step in looks if step is not None)
    if batch is None or not plain:
        return exam
    steps = Steps(plain, options=exam.source.options)
    if reason := _why_no_ddp(ranks, plain):
        return replace(exam, taken=replace(steps, why_not=reason))
    return replace(exam, taken=_under_ddp(jobs, model, batch, steps, patience))


def _reordered(jobs: Jobs, model: Target, built: Description) -> tuple[str, ...]:
    """Return the names of the parameters as processes with other hash seeds order them; nothing where that is alike.

    The ranks of a pool are forked, and share one seed; another pool is started only where the sources make sets.
    """
    mine = [each.name for each in built.parameters]
    for seed in HASH_SEEDS if any(map(has_sets, built.files)) else ():
        pool = jobs.with_hash_seed(seed)
        if pool is None:
            return ()
        with pool as others, suppress(NotRun, ServerLostError):
            outcomes = others.run(alike, model, deadline=FIRST_LOOK)
            for each in outcomes[:1]:
                names = [each.name for each in each.value.parameters] if isinstance(each, Returned) else mine
                if names != mine and set(names) == set(mine):
                    return tuple(names)
    return ()


def _apart(ranks: tuple[Description, ...]) -> dict[str, tuple[Plain, ...]]:
    return _rows([rank.plain for rank in ranks])


def _rows(told: Sequence[tuple[Plain, ...]]) -> dict[str, tuple[Plain, ...]]:
    """Return what is not the same on all ranks, of what all of them have."""
    held = [{each.path: each for each in rank} for rank in told]
    common = [path for path in held[0] if all(path in each for each in held)]
    rows = {path: tuple(each[path] for each in held) for path in common}
    return {
        path: row
        for path, row in rows.items()
        if len({each.shape for each in row}) == 1 and len({each.numbers for each in row}) > 1
    }


def _why_no_ddp(ranks: tuple[Description, ...], plain: tuple[PlainStep, ...]) -> str:
    """Return why DDP is not tried; empty when it is."""
    if any(step.trouble is not None for step in plain):
        return "the bare model takes no step with the example batch"
    if ranks[0].inner:
        return f"the model wraps its own part {ranks[0].inner[0]}"
    if any(_layout(rank) != _layout(ranks[0]) for rank in ranks):
        return "the ranks build different models"
    return ""


def _layout(rank: Description) -> object:
    return [replace(parameter, device="") for parameter in rank.parameters], [
        replace(buffer, device="", stride=()) for buffer in rank.buffers
    ]


def _under_ddp(jobs: Jobs, model: Target, batch: Target, steps: Steps, patience: float) -> Steps:
    way, options = steps.plain[0].call, dict(steps.options)
    started = time.monotonic()
    outcomes = jobs.run(wrapped_steps, model, batch, way, options, deadline=patience)
    waited_only = {Stuck} <= {type(outcome) for outcome in outcomes} <= {Stuck, Returned}
    if waited_only and time.monotonic() - started < patience - 1:
        return replace(steps, why_not="the steps under DDP were cut short by the time of the whole run (--timeout)")
    steps = replace(steps, wrapped=outcomes)
    for words, option in CURES.items():
        if steps.raised(words) and not options.get(option):
            cured = jobs.run(wrapped_steps, model, batch, way, {**options, option: True}, deadline=patience)
            works = all(isinstance(outcome, Returned) for outcome in cured)
            return replace(steps, remedies=((option, works),))
    if all(isinstance(outcome, Returned) for outcome in outcomes):
        return replace(steps, parities=_parities(jobs.run(compare, model, batch, way, options, deadline=patience)))
    return steps


def _parities(outcomes: tuple[Outcome, ...]) -> tuple[Parity, ...]:
    parities = tuple(outcome.value for outcome in outcomes if isinstance(outcome, Returned))
    if len(parities) == len(outcomes):
        return parities
    raised = [f"{outcome.kind}: {outcome.message}" for outcome in outcomes if isinstance(outcome, Raised)]
    reason = " ".join((raised or ["it took too long"])[0].split())[:200]
    return (Parity(why_not=f"the comparison of gradients failed: {reason}"),)
