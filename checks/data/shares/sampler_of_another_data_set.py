"""A DistributedSampler was made for another data set than the loader has.

## What happens

`DistributedSampler(dataset)` keeps the length of the data set that it is given, and draws indices below it. In a loader
of a longer data set (`DataLoader(train_set, sampler=DistributedSampler(val_set))`) the samples from that length on are
never drawn, on any rank: an epoch is short, the loss falls, and nothing fails. For a shorter data set the indices are
too large, which raises an IndexError, unless the data set takes any index.

## How to be sure

Compare `len(loader.sampler) * world_size` with `len(loader.dataset)`: padding makes the former larger by less than the
world size. ddpdoctor compares both when a pass begins.

Where part of a data set is meant, a `Subset` says so to both the loader and the sampler.

In a source (`ddpdoctor lint`): the two data sets are made by one class, one of them for training and the other for
tests.

## How to mend it

    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, sampler=sampler)

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: torch/utils/data/distributed.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    Severity,
    Training,
    dotted,
    given,
    keyword,
    lint,
    place,
    watch,
)

from ..._scripts.source import LOADER, SAMPLER

if TYPE_CHECKING:
    from ddpdoctor.check import Sampler, Script

AILMENT = Ailment("DDP617", Severity.WARNING)
FIX = Fix(
    "make the sampler for the data set of its loader",
    diff="-sampler = DistributedSampler(val_set)\n+sampler = DistributedSampler(train_set)\n"
    " loader = DataLoader(train_set, sampler=sampler)",
)


@watch(EpochStarted)
def while_training(event: EpochStarted, training: Training) -> Iterator[Finding]:
    """Compare how much a sampler gives each rank with the length of the loader's data set."""
    sampler = event.sampler
    if event.number or event.rank or sampler is None or event.length is None or event.owning_library:
        return
    expected = _share(sampler, event.length)
    if expected is None or sampler.length is None or sampler.length == expected:
        return
    before = training.of(EpochStarted, pid=event.pid, number=0)
    if any(each is not event and each.made == event.made and each.length == event.length for each in before):
        return  # said
    replicas = sampler.replicas or 1
    most = sampler.length * replicas
    missing = f"the samples from {most} on are drawn by no rank" if most < event.length else "more than there are"
    yield Finding(
        f"the sampler of the loader of {event.dataset} was made for another data set: it draws from about {most} "
        f"indices, and there are {event.length} samples",
        (
            Evidence(
                f"{sampler.length} indices for each of {replicas} ranks: {missing}",
                f"{expected} for each rank",
                f"the loop of {event.site}",
            ),
        ),
        FIX,
        place(event.drawn_at),
    )


def _share(sampler: Sampler, length: int) -> int | None:
    """Return how many indices torch's sampler gives each rank for a data set of this length; None for any other."""
    if sampler.kind != "DistributedSampler" or not sampler.replicas or not length:
        return None
    if sampler.drop_last and length % sampler.replicas:
        return -(-(length - sampler.replicas) // sampler.replicas)
    return -(-length // sampler.replicas)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a loader of test data whose sampler was made for the training's, or the other way round."""
    for loader in script.calls(LOADER):
        data, sampler = given(loader, 0, "dataset"), _sampler(script, loader)
        other = given(sampler, 0, "dataset") if sampler is not None else None
        if data is None or sampler is None or other is None or dotted(data) == dotted(other):
            continue
        if _are_of_two_splits(script, data, other):
            right = script.code(sampler).replace(script.code(other), script.code(data), 1)
            yield Finding(
                f"the sampler of the loader of {script.code(data)} was made for {script.code(other)}, which has "
                "another number of samples",
                (script.seen(sampler, right), script.seen(loader)),
                Fix(
                    "make the sampler for the data set of its loader",
                    edits=(script.replaced(other, script.code(data)),),
                )
                if len([each for each in script.calls(LOADER) if _sampler(script, each) is sampler]) == 1
                else FIX,
                script.place(sampler),
            )


def _sampler(script: Script, loader: ast.Call) -> ast.Call | None:
    """Return the DistributedSampler that a loader is given, by its name or in a dict of options, if by any way."""
    handed = keyword(loader, "sampler")
    for word in loader.keywords if handed is None else ():
        options = script.value(word.value) if word.arg is None else None
        for key, value in zip(options.keys, options.values, strict=True) if isinstance(options, ast.Dict) else ():
            if isinstance(key, ast.Constant) and key.value == "sampler":
                handed = value
    if handed is None:
        return None
    held = script.can_hold(handed) if isinstance(handed, (ast.Name, ast.Attribute)) else [handed]
    made = [each for each in held if not (isinstance(each, ast.Constant) and each.value is None)]
    one = made[0] if len(made) == 1 else None
    return one if isinstance(one, ast.Call) and script.resolve(one.func) == SAMPLER else None


TRAINS, TESTS = re.compile(r"train", re.IGNORECASE), re.compile(r"(?<![a-z])(?:test|val|eval|dev)", re.IGNORECASE)


def _are_of_two_splits(script: Script, one: ast.expr, other: ast.expr) -> bool:
    """Whether two data sets are objects of one class, of which one was told to be for training and the other not."""
    made = [script.held(each) if isinstance(each, (ast.Name, ast.Attribute)) else None for each in (one, other)]
    match made:
        case [ast.Call(func=first) as here, ast.Call(func=second) as there] if ast.unparse(first) == ast.unparse(
            second
        ):
            return {_split(here), _split(there)} == {"train", "test"}
    return False


def _split(made: ast.Call) -> str:
    """Return which split the literals of a call name; empty where they name none, or both."""
    told = [keyword(made, "train"), *made.args, *(each.value for each in made.keywords)]
    flag = told[0]
    if isinstance(flag, ast.Constant) and isinstance(flag.value, bool):
        return "train" if flag.value else "test"
    texts = [each.value for each in told if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    names = {name for name, word in (("train", TRAINS), ("test", TESTS)) if any(map(word.search, texts))}
    return names.pop() if len(names) == 1 else ""
