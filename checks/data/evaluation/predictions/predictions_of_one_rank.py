"""One rank writes the predictions of its own share, as those of all samples.

## What happens

A DistributedSampler, Accelerate's `prepare` and Lightning give each rank its share of the samples, also where a model
only predicts. The list that a loop fills, and what Lightning's `trainer.predict` returns, hold the predictions of that
share. Where rank 0 alone writes them, the file has half of the rows with two ranks, an eighth with eight. Nothing
fails; a submission, or a table that is joined by a key, lacks the others.

## How to be sure

Count the rows of the file. ddpdoctor follows the list from the loop, or from `trainer.predict`, to the line that writes
it: reported where nothing exchanges it on the way, and one rank alone comes to that line. Not where a few samples are
written to be looked at, nor where each rank writes a file.

## How to mend it

Gather the rows of all ranks, with what says which sample each is of, and drop those that fill up the last batch:

    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, rows)          # on all ranks
    rows = sorted({row[0]: row for part in parts for row in part}.values())   # row[0]: number of the sample

With Accelerate: `accelerator.gather_for_metrics(...)` in the loop. With Lightning: the lines above behind
`trainer.predict`, or a BasePredictionWriter whose `write_on_epoch_end` writes a file for each `trainer.global_rank`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU, Accelerate 1.15 and Lightning 2.6. Sources: PyTorch
documentation, torch.utils.data.distributed; Lightning documentation, BasePredictionWriter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    EpochStarted,
    Evaluated,
    Evidence,
    Finding,
    Fix,
    Severity,
    Site,
    Training,
    keyword,
    lint,
    one_rank_only,
    place,
    tree_of,
    watch,
)
from ddpdoctor.frameworks import ACCELERATE, LIGHTNING

from ...._evaluation.evaluations import evaluation, sharded
from ...._frameworks.lightning import SAMPLER, TRAINERS, has_ranks
from ...._scripts.evaluation import is_evaluation
from ...._scripts.source import is_own, prepared_loaders, sharded_loaders
from ._written_alone import GATHERS, Written, kept_in, written_alone

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree

AILMENT = Ailment("DDP654", Severity.WARNING)
PREDICTS = re.compile(
    r"pred|result|submi|output|answer|logit|generat|respons|embed|feat|label|prob|caption|transcri|decoded|hypo|score",
    re.IGNORECASE,
)
"""Names of what has a row for each sample; what counts and losses are kept in has others."""
EXCHANGES = r"gather|merge|scatter|all_to_all"
GATHER = (
    "+parts = [None] * dist.get_world_size()\n+dist.all_gather_object(parts, {0})   # on all ranks\n"
    "+{0} = [row for part in parts for row in part]"
)
BY_ACCELERATE = "+{0}.extend(accelerator.gather_for_metrics(predicted).tolist())   # in the loop, on all ranks"


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Follow what loops over shares keep, and what Lightning predicts, to the line that writes it."""
    if re.search(EXCHANGES, script.text) or project.does(EXCHANGES):
        return
    for start, held, shared in (*_loops(script), *_predictions(script)):
        found = written_alone(script.tree, start, {held}, lambda each: _guard(script, each))
        if found is not None and (not isinstance(start, ast.For) or _are_predictions(found, held)):
            yield Finding(
                f"one rank writes the predictions of its own share: {held}",
                (
                    shared,
                    script.seen(found.call, "the rows of all ranks, gathered before"),
                    Evidence(f"one rank alone comes there, {found.guard}", "", script.path),
                ),
                _fix(held, accelerate=script.frameworks == {"accelerate"}),
                script.place(found.call),
            )


def _loops(script: Script) -> Iterator[tuple[ast.stmt, str, Evidence]]:
    """Yield the loops that predict over a loader which is certainly shared out, what they keep, and who shares it."""
    prepared = prepared_loaders(script) if script.frameworks == {"accelerate"} else ()
    for name, shared in (*(sharded_loaders(script) if is_own(script) else ()), *prepared):
        for loop in script.nodes(ast.For):
            goes = any(ast.unparse(each) == name for each in ast.walk(loop.iter) if isinstance(each, ast.Name))
            if goes and is_evaluation(script, "", loop) and (held := kept_in(script.tree, loop)):
                yield from ((loop, each, script.seen(shared)) for each in sorted(held))


def _predictions(script: Script) -> Iterator[tuple[ast.stmt, str, Evidence]]:
    """Yield what is given the predictions of a Trainer of Lightning's that shares the samples out."""
    for call in script.nodes(ast.Call):
        match call.func:
            case ast.Attribute(value=owner, attr="predict") if made := script.made_by(owner, *TRAINERS):
                if not has_ranks(script.tree, made) or any(keyword(made, each) is not None for each in SAMPLER):
                    continue
                found = _assigned(script.tree, call)
                if found is not None and not _guard(script, found[0]):
                    yield *found, Evidence(f"{script.code(call)} returns those of the rank", "", f"line {call.lineno}")


def _assigned(tree: Tree, call: ast.Call) -> tuple[ast.stmt, str] | None:
    """Return the statement that gives one variable what a call returns, alone or joined, and the variable."""
    statement = tree.statement(call)
    if any(each.arg == "return_predictions" for each in call.keywords):
        return None
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if not GATHERS.search(ast.unparse(value)):
            return statement, name
    return None


def _guard(script: Script, statement: ast.stmt) -> str:
    guard = script.one_rank_guard(statement)
    return guard.words if guard is not None else ""


def _are_predictions(found: Written, held: str) -> bool:
    return PREDICTS.search(f"{held} {found.code}") is not None


def _fix(held: str, *, accelerate: bool) -> Fix:
    lines = (BY_ACCELERATE if accelerate else GATHER).format(held)
    return Fix("gather the rows of all ranks before one writes them", diff=lines)


@watch(Evaluated)
def while_training(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Follow what a loop over shares keeps, after which the ranks exchange nothing."""
    shares = _of_accelerate(event, training) or _of_samplers(event, training)
    if not shares or event.number or event.site is None:
        return
    file, tree = event.site.file, tree_of(event.site.file)
    for loop in (each for each in tree.of(ast.For) if each.iter.lineno == event.site.line):
        for held in sorted(kept_in(tree, loop)):
            found = _written(file, loop, held)
            if found is not None and _are_predictions(found, held):
                yield _finding(file, found, held, tuple(
                    Evidence(f"{share}, then no communication", "the rows of all ranks, gathered before",
                             f"rank {rank}, the loop of {event.site}")
                    for rank, share in shares.items())[:8], accelerate=training.framework is ACCELERATE)  # fmt: skip


def _of_samplers(event: Evaluated, training: Training) -> dict[int, str]:
    """Return in words what each rank went through whose sampler has a share for each, if nothing was sent."""
    ranks = evaluation(event, training)
    if not sharded(ranks) or any(each.told.sent for each in ranks.values()):
        return {}
    return {rank: f"{each.samples} of {each.started.length} samples" for rank, each in ranks.items()}


def _of_accelerate(event: Evaluated, training: Training) -> dict[int, str]:
    """Return in words what each rank went through of a loader that Accelerate shares out; empty where it does not."""
    started = _started(event, training) if training.framework is ACCELERATE else {}
    if any(each.sampler is None or each.sampler.shares != training.world_size for each in started.values()):
        return {}
    return {rank: f"{each.batches} batches, a share of {each.length} samples" for rank, each in started.items()}


def _started(event: Evaluated, training: Training) -> dict[int, EpochStarted]:
    """Return by rank where a pass began, once all ranks have told that nothing was exchanged meanwhile and after."""
    told = training.complete(Evaluated, loader=event.loader, number=event.number, site=event.site)
    found = {}
    for rank, each in told.items():
        began = training.of(EpochStarted, pid=each.pid, loader=each.loader, number=each.number)
        if each.sent or not began:
            return {}
        found[rank] = began[-1]
    return found if len(found) > 1 else {}


@watch(Evaluated)
def by_lightning(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Follow what Lightning's Trainer returns of its predictions, where nothing was exchanged meanwhile and after."""
    ranks = _started(event, training) if training.framework is LIGHTNING and not event.number else {}
    samplers = [each.sampler for each in ranks.values()]
    if not ranks or any(each is None or each.replicas != training.world_size for each in samplers):
        return
    for file, line, _ in ranks[0].callers if 0 in ranks else ():
        tree = tree_of(file)
        for call in (each for each in tree.of(ast.Call) if each.lineno <= line <= (each.end_lineno or 0)):
            predicts = isinstance(call.func, ast.Attribute) and call.func.attr == "predict"
            if not predicts or (assigned := _assigned(tree, call)) is None:
                continue
            start, held = assigned
            found = _written(file, start, held)
            if found is not None:
                yield _finding(file, found, held, tuple(
                    Evidence(f"{each.sampler.length if each.sampler else 0} of {each.length} samples, then no "
                             "communication", "the rows of all ranks, gathered before", f"rank {rank}, {file}:{line}")
                    for rank, each in ranks.items())[:8])  # fmt: skip


def _written(file: str, start: ast.stmt, held: str) -> Written | None:
    return written_alone(tree_of(file), start, {held}, lambda each: one_rank_only(file, each.lineno))


def _finding(
    file: str, found: Written, held: str, evidence: tuple[Evidence, ...], *, accelerate: bool = False
) -> Finding:
    return Finding(
        f"one rank writes the predictions of its own share: {held}",
        (*evidence, Evidence(f"one rank alone writes them, {found.guard}", "", f"{file}:{found.call.lineno}")),
        _fix(held, accelerate=accelerate),
        place(Site(file, found.call.lineno, "")),
    )
