"""What lines of the user's own do in a step, each once, with the time of all of it."""

from __future__ import annotations

import linecache

from ddpdoctor.check import LineKind, LinesSampled, SampledLine, statement_at, tree_of

from ..source._again import first_forward
from ..source._at_line import (
    ASLEEP,
    EVALUATED,
    FILLED,
    HOOK,
    NUMBERS,
    PARAMETERS,
    READ,
    ROWS,
    SAMPLES,
    WRITTEN,
    calls_a_function,
    what_at,
)
from ..source._batch_work import of_the_batch
from ..source._evaluated import evaluation_at
from ..source._past import past_at
from ..source._unchanging import made_anew

OPEN = (
    "",
    LineKind.MODULE_CALLED,
    LineKind.FORWARD,
    LineKind.BACKWARD,
    LineKind.LOGGING,
    LineKind.COLLECTIVE,
)
"""What the sampler itself says of such a line: nothing, that a module is called, something is logged or sent."""
PAST, BATCH, AGAIN, ANEW = "all of the past", "the batch alone", "forward again", "made anew"
ORDERED = "order drawn up"
CALLS_MODEL = {LineKind.FORWARD, LineKind.MODULE_CALLED}
LOOPS = {NUMBERS, PARAMETERS, FILLED, ROWS}
NOT_A_WORKERS = {ASLEEP, WRITTEN, READ, HOOK}
Group = tuple[str, str, int]


def own_work(told: LinesSampled) -> dict[Group, SampledLine]:
    """Return what a rank's own lines do, by kind, file and the first line of it; all lines of a loop are one."""
    found: dict[Group, list[SampledLine]] = {}
    models = frozenset(line.line for line in told.sampled if line.kind in CALLS_MODEL)
    trains = {(line.file, line.line) for line in told.sampled if line.kind in {LineKind.BACKWARD, LineKind.OPTIMIZER}}
    for line in told.sampled:
        evaluation = evaluation_at(line.file, line.line)
        if (line.file, line.line) not in trains and evaluation is not None:
            found.setdefault((EVALUATED, line.file, evaluation), []).append(line)
            continue
        if in_sampler(line):
            found.setdefault((ORDERED, line.file, line.line), []).extend(_of_sampler(line))
        for part in parts_of(line) if line.kind in OPEN else ():
            what = _what(part, models)
            if what is not None:
                found.setdefault(what, []).append(part)
    return {key: together(parts) for key, parts in found.items() if parts}


def in_sampler(line: SampledLine) -> bool:
    """Whether a loop's own pass begins, or goes on, in lines of the user's most of the time: those of a sampler."""
    if line.kind != LineKind.LOADER_BEGUN or "iter(" in linecache.getline(line.file, line.line):
        return False
    return 2 * sum(part.nanoseconds for part in _of_sampler(line)) >= line.nanoseconds


def _of_sampler(line: SampledLine) -> list[SampledLine]:
    """Return the innermost lines that a line of the loop spends its time in, in classes that are iterated over."""
    return [part for part in parts_of(line) if _is_iterated(part.inner_file, part.inner_line)]


def _is_iterated(file: str, number: int) -> bool:
    """Whether a line stands in a class that has an ``__iter__``."""
    tree = tree_of(file)
    statement = statement_at(tree, number)
    owner = tree.class_of(statement) if statement is not None else None
    return owner is not None and any(getattr(each, "name", "") == "__iter__" for each in owner.body)


def _what(part: SampledLine, models: frozenset[int]) -> Group | None:
    """Return what a line of the loop does in one of its innermost lines; None where its source does not say."""
    if part.kind in CALLS_MODEL and first_forward(part.file, part.line):
        return AGAIN, part.file, part.line
    if part.kind in {"", *CALLS_MODEL} and (first := made_anew(part.inner_file, part.inner_line)):
        return ANEW, part.inner_file, first
    at = what_at(part.inner_file, part.inner_line) or _around(part)
    if not part.kind:
        if past_at(part.inner_file, part.inner_line, part.file, part.line) is not None:
            return PAST, part.inner_file, part.inner_line
        if (at is None or at[0] not in NOT_A_WORKERS) and (first := of_the_batch(part.file, part.line, models)):
            return BATCH, part.file, first
    return at if at is not None and _is_apt(at[0], part.kind) else None


def _around(part: SampledLine) -> Group | None:
    """Return what the line of the loop does; None where its time goes to a function that its own loop does not call."""
    at = what_at(part.file, part.line)
    if at is None or at[0] not in LOOPS or (part.inner_file, part.inner_function) == (part.file, part.function):
        return at
    return at if calls_a_function(*at[1:], part.inner_file) else None


def parts_of(line: SampledLine) -> list[SampledLine]:
    """Return a line once for each innermost line that it spends its time in, with the time of that."""
    return [
        line._replace(
            nanoseconds=clock, processor=processor, waited=waited, inner_file=file, inner_line=number,
            inner_function=function, most=clock, inside=(),
        )
        for file, number, function, clock, processor, waited in line.inside
    ] or [line]  # fmt: skip


def together(parts: list[SampledLine]) -> SampledLine:
    """Return lines as the one that has most, with the time of all."""
    first = max(parts, key=lambda each: each.nanoseconds)
    return first._replace(
        nanoseconds=sum(each.nanoseconds for each in parts),
        processor=sum(each.processor for each in parts),
        waited=sum(each.waited for each in parts),
        steps=max(each.steps for each in parts),
    )


def _is_apt(what: str, kind: str) -> bool:
    """Whether that can be what the time goes to where the sampler saw this: in backward hooks alone."""
    if kind == LineKind.BACKWARD:
        return what == HOOK
    if kind == LineKind.FORWARD:
        return what in {SAMPLES, FILLED, HOOK}
    if kind == LineKind.COLLECTIVE:
        return what == PARAMETERS
    return what != SAMPLES or kind == LineKind.MODULE_CALLED
