"""The samplers of the ranks shuffle with different seeds.

## What happens

DistributedSampler permutes the whole data set on each rank and takes the rank's part of it; only with the same
permutation are the parts disjoint. With `DistributedSampler(seed=rank)`, or a seed drawn on each rank, samples come
to several ranks and others to none: with two ranks about a quarter of the data is missing in each epoch.

The transformers Trainer, and Accelerate with `use_seedable_sampler=True`, shuffle on each rank with a seed of the
sampler's, and then share out: `TrainingArguments(seed=42 + rank)`, or `set_seed(42, device_specific=True)` before
`prepare`, has the same effect.

## How to be sure

Print `sampler.seed` on each rank. ddpdoctor reads the seeds and counts the samples that came to several ranks.

In a running training (`ddpdoctor run`) the seeds of the samplers that share out one data set are compared; those of a
class of the script's own, which may never end, where the ranks have also drawn the same samples at first.

In a source (`ddpdoctor lint`): the `seed` of a DistributedSampler, or of TrainingArguments, is computed from the rank.

## How to mend it

Use the same seed on all ranks: leave the argument `seed` out, or give the Trainer a `data_seed`, and Accelerate's
`DataLoaderConfiguration` one. Add the rank to the seed of augmentations only.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU: of 10 samples 2 ranks saw 7. Source: PyTorch documentation,
DistributedSampler, `seed`: "This number should be identical across all processes in the distributed group";
accelerate/data_loader.py, `SeedableRandomSampler`: with transformers 5.24, 70 of 256 samples came twice in an epoch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    SEEDABLE,
    TRAINER,
    Ailment,
    EpochStarted,
    Evidence,
    Fact,
    Finding,
    Fix,
    NotRun,
    OrderSeen,
    Place,
    Severity,
    Training,
    compare_shares,
    given,
    is_open,
    keyword,
    last_name,
    lint,
    place,
    probe,
    tree_of,
    watch,
)

from ..._scripts.source import SAMPLER
from .._passes import RankPass, same_data, same_pass, splitting, told
from .._words import SHOWN, at, sharer, shown

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam, Script

AILMENT = Ailment("DDP616", Severity.ERROR)
FEWEST = 8  # samples
SHARED = 0.1  # of what a rank has drawn
RANKS = frozenset({Fact.RANK, Fact.LOCAL_RANK})
ARGUMENTS = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
STREAMED = re.compile(r"IterableDataset|streaming=True")  # what has no sampler
OF_TRAINER = Fix(
    "give all ranks the same seed; or, where the ranks are to draw other numbers, the same data_seed",
    diff="-TrainingArguments(seed=42 + rank, ...)\n+TrainingArguments(seed=42, ...)\n"
    "or\n+TrainingArguments(seed=42 + rank, data_seed=42, ...)",
)
OF_ACCELERATE = Fix(
    "give Accelerate's sampler one seed on all ranks",
    diff="-DataLoaderConfiguration(use_seedable_sampler=True)\n"
    "+DataLoaderConfiguration(use_seedable_sampler=True, data_seed=42)",
)


@probe
def by_its_own_word(loader: LoaderExam) -> Iterator[Finding]:
    """Compare the seeds, then what the ranks drew."""
    loader.several()
    ranks = loader.indexed()
    samplers = [rank.sampler for rank in ranks if rank.sampler is not None and rank.sampler.replicas == len(ranks)]
    if len(samplers) < len(ranks):
        raise NotRun("no sampler that splits by rank")
    seeds = [sampler.seed for sampler in samplers]
    shares = compare_shares([rank.samples() for rank in ranks])
    if len(set(seeds)) == 1 or samplers[0].shuffle is False or len(shares.repeated) < len(ranks):
        return
    if loader.same_data() is False:
        return
    length = ranks[0].length
    yield Finding(
        f"the samplers shuffle with different seeds ({', '.join(map(str, seeds))}): "
        f"{len(shares.repeated)} samples reached more than one rank",
        (
            *(
                Evidence(f"seed={seed}, {shown(rank.samples())}", f"seed={seeds[0]}", f"rank {rank.rank}'s sampler")
                for rank, seed in zip(ranks, seeds, strict=True)
            ),
            Evidence(f"{shares.distinct} different samples of {length}", f"{length}", "all ranks together"),
        ),
        Fix("use one seed on all ranks", diff="-DistributedSampler(dataset, seed=...)\n+DistributedSampler(dataset)"),
        at(loader, sampler=True),
    )


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the seeds of samplers that share one data set out."""
    ranks = same_pass(event, training)
    samplers = splitting(ranks)
    seeds = [sampler.seed for sampler in samplers.values()]
    if not samplers or None in seeds or len(set(seeds)) == 1 or same_data(ranks) is False:
        return
    standard = all(sampler.shuffle and sampler.kind == "DistributedSampler" for sampler in samplers.values())
    if not standard and not _overlap(ranks):
        return
    yield Finding(
        f"the samplers shuffle with different seeds ({told(seeds)}): their shares overlap",
        tuple(
            Evidence(
                f"seed={seed}, the pass begins {shown(each.order.indices)}",
                f"seed={seeds[0]}",
                f"rank {rank}'s sampler",
            )
            for seed, (rank, each) in zip(seeds, ranks.items(), strict=True)
        )[:SHOWN],
        Fix("use one seed on all ranks", diff="-DistributedSampler(dataset, seed=...)\n+DistributedSampler(dataset)")
        if standard
        else Fix("use one seed on all ranks", diff="-Sampler(..., seed=seed + rank)\n+Sampler(..., seed=seed)"),
        _made(event, next(iter(samplers.values())).kind) or place(next(iter(ranks.values())).started.drawn_at),
    )


def _overlap(ranks: Mapping[int, RankPass]) -> bool:
    """Whether ranks have drawn the same samples before they could have drawn all of a share; a pass need not end."""
    length = min(each.started.length or 0 for each in ranks.values())
    drawn = [each.order.indices[: length // len(ranks)] for each in ranks.values()]
    once = all(len(set(each)) == len(each) >= FEWEST for each in drawn)
    together = [index for each in drawn for index in each]
    return once and len(together) - len(set(together)) > max(len(ranks), SHARED * len(drawn[0]))


def _made(event: OrderSeen, kind: str) -> Place | None:
    """Return the one line of the file that trains which makes a sampler of a class with the rank in its seed."""
    file = event.site.file if event.site else ""
    calls = [each for each in tree_of(file).of(ast.Call) if last_name(each.func) == kind]
    seeded = [each for each in calls if any(word.arg == "seed" and "rank" in ast.unparse(word.value).lower()
              for word in each.keywords)]  # fmt: skip
    return Place(file=file, line=seeded[0].lineno) if len(seeded) == 1 else None


@watch(EpochStarted)
def shared_out(event: EpochStarted, training: Training) -> Iterator[Finding]:
    """Compare the seeds of what Accelerate shuffles, and then shares out, once all ranks have begun the first pass."""
    if event.number or not event.training:
        return
    ranks = training.complete(EpochStarted, loader=event.loader, number=0, training=True, site=event.site)
    samplers = [each.sampler for each in ranks.values() if each.sampler and each.sampler.shares == len(ranks)]
    seeds = [each.seed for each in samplers if each.seed is not None]
    alike = len({(each.dataset, each.length) for each in ranks.values()}) == 1
    if not ranks or not alike or len(seeds) < len(ranks) or len(set(seeds)) == 1:
        return
    name = sharer(training)
    yield Finding(
        f"the ranks shuffle with different seeds ({told(seeds)}) what {name} shares out: the shares overlap",
        tuple(
            Evidence(f"initial_seed={seed}", f"{seeds[0]}", f"rank {rank}'s {SEEDABLE}")
            for seed, rank in zip(seeds, ranks, strict=True)
        )[:SHOWN],
        OF_TRAINER if training.framework is TRAINER else OF_ACCELERATE,
        place(event.site),
    )


@lint
def given_to_the_trainer(script: Script) -> Iterator[Finding]:
    """Look for a rank in the seed of TrainingArguments, which the Trainer shuffles with before it shares out."""
    for call in script.calls(*ARGUMENTS):
        seed = keyword(call, "seed")
        if seed is None or keyword(call, "data_seed") is not None or is_open(call) or STREAMED.search(script.text):
            continue
        if any(script.fact(node) in RANKS for node in ast.walk(seed) if isinstance(node, ast.expr)):
            yield Finding(
                f"the Trainer's seed is {script.code(seed)}, another on each rank: the ranks' shares overlap",
                (script.seen(seed, "the same seed on all ranks"),),
                OF_TRAINER,
                script.place(call),
            )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a rank in the seed that a DistributedSampler is given."""
    for call in script.calls(SAMPLER):
        seed = given(call, 4, "seed")
        ranks = [node for node in ast.walk(seed) if isinstance(node, ast.expr)] if seed is not None else []
        if seed is not None and any(script.fact(node) in RANKS for node in ranks):
            yield Finding(
                f"the sampler's seed is {script.code(seed)}, another on each rank: the ranks' shares overlap",
                (script.seen(seed, "the same seed on all ranks"),),
                Fix(
                    "give all ranks the same seed; the sampler itself gives each its own share",
                    edits=(script.replaced(seed, _common(script, seed)),),
                ),
                script.place(call),
            )


def _common(script: Script, seed: ast.expr) -> str:
    """Return the part of a seed that all ranks have: what the rank is added to, or 0, as the sampler has it."""
    match seed:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            sides = [each for each in (left, right) if script.fact(each) not in RANKS]
            if len(sides) == 1 and not script.can_differ(sides[0]):
                return ast.get_source_segment(script.text, sides[0]) or ast.unparse(sides[0])
    return "0"
