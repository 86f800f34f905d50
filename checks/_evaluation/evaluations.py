"""Evaluations of a running training: what each rank went through, and what became of what it had counted."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from ddpdoctor.check import (
    EpochStarted,
    Evaluated,
    EvaluatedByHand,
    ShardingBegan,
    Site,
    StepFingerprinted,
    Training,
    Wrapped,
)

from .._ledgers.cut import made_of_share
from .._ledgers.ledger import built, of_all_ranks, sheet
from .._ledgers.sheets import EXCLUSIVE, Sheet
from .._ledgers.updates import updates
from .metrics import part_around


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank evaluated."""

    told: Evaluated
    started: EpochStarted

    @property
    def samples(self) -> int | None:
        """How many samples the rank went through; None where its sampler does not say."""
        sampler = self.started.sampler
        return sampler.length if sampler is not None else None


def evaluation(event: Evaluated, training: Training) -> dict[int, Share]:
    """Return the same evaluation of all ranks, once the last of them has told; nothing where a framework has made it.

    All ranks share the gradients of one model, and went through their loaders to the end.
    """
    told = training.complete(Evaluated, loader=event.loader, number=event.number, site=event.site)
    groups = {each.group for each in training.of(Wrapped)}
    if not told or len(groups) > 1 or training.framework is not None:
        return {}
    if not all(shares_gradients(each.pid, training) for each in told.values()):
        return {}
    found = {}
    for rank, each in told.items():
        started = training.of(EpochStarted, pid=each.pid, loader=each.loader, number=each.number)
        if not started or not each.complete or started[-1].owning_library or started[-1].subgroups:
            return {}
        found[rank] = Share(each, started[-1])
    return found


def by_hand(event: EvaluatedByHand, training: Training) -> dict[int, EvaluatedByHand]:
    """Return the same evaluation without a loader of all ranks that train one model; nothing before all have told."""
    ranks = training.complete(EvaluatedByHand, number=event.number)
    groups = {each.group for each in training.of(Wrapped)}
    if len(ranks) < 2 or len(groups) > 1 or training.framework is not None:  # noqa: PLR2004 - nobody else
        return {}
    return ranks if all(shares_gradients(each.pid, training) for each in ranks.values()) else {}


def shares_gradients(pid: int, training: Training) -> bool:
    """Whether a process has a model whose gradients all ranks share: wrapped, sharded, or exchanged by hand."""
    groups = {each.group for each in training.of(Wrapped, pid=pid)}
    if groups:
        return len(groups) == 1 and len(groups.pop()) == training.world_size > 1
    told = reversed(training.of(StepFingerprinted, pid=pid))
    known = next(filter(None, (_is_shared(each, training) for each in told)), None)
    return known == YES or (known is None and _share_without_optimizer(training))


def _share_without_optimizer(training: Training) -> bool:
    """Whether a script without an optimizer of torch's reduces the gradients of all ranks."""
    steps = updates(training)
    return bool(steps) and all(each.shares_gradients for each in steps)


YES, NO = "yes", "no"
MOST = 0.9  # of the gradients


def _is_shared(event: StepFingerprinted, training: Training) -> str:
    """Whether all ranks were given the same gradients in a step, or parts of them; empty where that is not known."""
    ranks, held = of_all_ranks(event, training), built(event, training)
    if len(ranks) < training.world_size or held is None:
        return ""
    names = {name for each in ranks.values() for name, *_ in each.sent}
    if any(each.subgroups for each in ranks.values()) or names & EXCLUSIVE:
        return NO
    if held.shards:
        return YES if training.of(ShardingBegan, pid=event.pid) else NO
    step = sheet(event, training)
    if step is None:
        return ""
    if not step.lines_that_tell:  # the ranks compute the same
        put = [line for line in step.lines if line.known]
        return YES if _reduces(step) or (put and all(line.shared for line in put)) else ""
    return YES if all(line.shared for line in step.lines_that_tell) else NO


def _reduces(step: Sheet) -> bool:
    """Whether the script gives the gradients of a step to a reduction, and no rank is given others than the rest."""
    sent = [
        each for each in step.exchanged("gradient") if (each.operation, each.when) == ("all_reduce", "after backward")
    ]
    elements = sum(each.elements for each in sent)
    return elements >= MOST * step.elements and not any(line.apart for line in step.lines)


def sharded(ranks: dict[int, Share]) -> bool:
    """Whether a sampler gives each rank its own share."""
    samplers = [each.started.sampler for each in ranks.values()]
    return bool(samplers) and all(
        sampler is not None and (sampler.replicas, sampler.rank) == (len(samplers), at)
        for at, sampler in enumerate(samplers)
    )


def are_cut(ranks: dict[int, Share]) -> bool:
    """Whether the script has cut a part for each rank, of which its loader is made."""
    made = [each.started.loader_site for each in ranks.values()]
    return None not in made and len(set(made)) == 1 and made[0] is not None and made_of_share(made[0])


def whole(ranks: dict[int, Share]) -> bool:
    """Whether each rank goes through all samples of a data set of one length."""
    lengths = {each.started.length for each in ranks.values()}
    return len(lengths) == 1 and all(
        each.started.sampler is not None
        and each.started.sampler.kind == "SequentialSampler"
        and not each.started.drop_last
        and each.samples == each.started.length
        for each in ranks.values()
    )


@dataclass(frozen=True, slots=True)
class Reduced:
    """What the ranks made of one number of each."""

    reduction: str
    site: Site

    def from_indexed_result(self) -> bool:
        """Whether the function takes a part of what a call returns: ``model(x)[mine]``, of rows that all ranks have."""
        around = part_around(self.site)
        assigned = (
            node for node in ast.walk(around) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        )
        results = {ast.unparse(target) for node in assigned for target in node.targets}
        parts = (node for node in ast.walk(around) if isinstance(node, ast.Subscript))
        return any(
            (isinstance(each.value, ast.Call) or ast.unparse(each.value) in results)
            and not isinstance(each.slice, (ast.Constant, ast.Slice))
            for each in parts
        )


def given_alike(events: Sequence[Evaluated | EvaluatedByHand]) -> bool:
    """Whether all ranks gave the same number to the first communication after an evaluation."""
    numbers = [each.given[0] if each.given else None for each in events]
    return None not in numbers and len(set(numbers)) == 1


def one_number(sent: list[tuple[tuple[str, str, int, str, int], ...]], most: int = 1) -> Reduced | None:
    """Return the all_reduce of a single number that alone followed an evaluation, on each rank; None for anything else.

    Of ``most`` numbers, where one for each class is wanted, say.

    ``sent`` is what each rank has sent since. A count that is added up beside the sum is a second number.
    """
    if not sent or len(set(sent)) > 1 or len(sent[0]) != 1:
        return None
    operation, reduction, elements, file, line = sent[0][0]
    if operation != "all_reduce" or not 0 < elements <= most:
        return None
    around = part_around(Site(file, line, ""))
    return Reduced(reduction, Site(file, line, getattr(around, "name", "<module>")))
