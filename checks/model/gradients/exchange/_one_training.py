"""What shows that several ranks are to train one model, and not each a model of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import EpochStarted, Evidence, FileWritten, Training, tree_of

from ...._ledgers.calls import REDUCERS, WRAPPERS, calls_in

if TYPE_CHECKING:
    from ...._ledgers.sheets import Sheet

LITTLE = 0.1  # of what is sent
HALF = 0.5  # of a model: whoever exchanges parameters sends as much


def one_training(steps: list[Sheet], training: Training) -> Evidence | None:
    """Find what shows that the ranks are to train one model, and not each its own."""
    first, last = steps[0], steps[-1]
    if first.calls("broadcast") and first.sent >= HALF * first.elements:
        return Evidence("the weights were broadcast before the first step", "", f"{first.sent} elements")
    if added := _adds_up_metrics(steps):
        return added
    if shared := next(shared_out(last, training), None):
        return shared
    writers = {each.rank for each in training.of(FileWritten) if each.steps}
    if writers == {0}:
        return Evidence("rank 0 alone saves a file", "", str(training.of(FileWritten, rank=0)[-1].site))
    if written := [*calls_in(last, WRAPPERS), *calls_in(last, REDUCERS, ".grad")]:
        return Evidence("the script has a line that exchanges gradients", "one that is reached", str(written[0]))
    return None


def in_vain(steps: list[Sheet]) -> Evidence | None:
    """Return what is sent between backward and each step, and leaves the gradients as they are."""
    if not sends_after_backward(steps, steps[-1].sent - steps[0].sent):
        return None
    told = [each for each in next(iter(steps[-1].ranks.values())).exchanges if each.when == "after backward"]
    most = max(told, key=lambda each: each.elements)
    what = f"{most.operation} of {most.elements} elements after backward, in each step"
    return Evidence(what, "its result in the gradients that the step is given", f"{most.file}:{most.line}")


def meant(steps: list[Sheet], training: Training) -> Evidence | None:
    """Find what shows that ranks that have begun differently are to train one model: two signs together."""
    step = steps[-1]
    shared = next(shared_out(step, training), None) or _adds_up_metrics(steps)
    saved = {each.rank for each in training.of(FileWritten) if each.steps} == {0}
    files = {each.site.file for each in (step.held, *step.ranks.values()) if each.site is not None}
    meant = saved or bool(calls_in(step, WRAPPERS)) or any(map(_names_wrapper, files))
    return shared if shared is not None and meant else None


def _adds_up_metrics(steps: list[Sheet]) -> Evidence | None:
    """Return what shows that the ranks have added up numbers while they trained."""
    for operation in ("all_reduce", "reduce"):
        first, last = steps[0].calls(operation), steps[-1].calls(operation)
        if last > first:
            return Evidence(f"{operation} was called {last} times, with no gradient", "", "all ranks")
    return None


def _names_wrapper(file: str) -> bool:
    """Whether a file imports what wraps models."""
    imports = (name.name for node in tree_of(file).of(ast.ImportFrom) for name in node.names)
    return any(name in WRAPPERS for name in imports)


def shared_out(step: Sheet, training: Training) -> Iterator[Evidence]:
    """Look for a data set that is shared out to the ranks, by a sampler or by a framework."""
    for passed in training.of(EpochStarted):
        sampler, framework = passed.sampler, training.framework
        if sampler is not None and framework is not None and sampler.shares == len(step.ranks):
            told = f"{framework.name} shares {passed.dataset} out to the ranks"
            yield Evidence(told, "a model that it wraps", str(passed.site))
        elif sampler is not None and sampler.replicas == len(step.ranks):
            told = f"{sampler.kind} shares {passed.dataset} out to {sampler.replicas} ranks"
            yield Evidence(told, "", str(passed.site))


def sends_after_backward(steps: list[Sheet], sent: int) -> bool:
    """Whether all that is sent goes out between backward and each step, and no parameter is among it."""
    own = all(line.own for line in steps[-1].lines_that_tell)
    if not own or not sent or any(each.exchanged("parameter") for each in steps):
        return False
    told = steps[-1].sends_after_backward * (steps[-1].number - steps[0].number)
    return abs(told - sent) <= LITTLE * sent
