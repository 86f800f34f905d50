"""The ranks build different models.

## What happens

DDP pairs the parameters of the ranks by their position. Another number of parameters raises "DDP expects same
model across all ranks"; another shape raises "appears not to match sizes of the same param in process 0" on
one rank while the others wait; another dtype kills a process with gloo (signal 6, seen with torch 2.13); and
another order of parameters of equal shape is not noticed at all: the gradient of one is averaged with that of
another, in silence. Usual causes: a size read from the rank's own shard of the data (vocabulary, number of
classes), a condition on the rank, a random architecture, iteration over a `set`, whose order differs between
processes.

## How to be sure

ddpdoctor builds the model on each rank and compares name, shape, dtype and order of all
parameters and buffers before anything is wrapped. Where the sources make a `set`, it builds the model in processes with
other hash seeds as well, and compares the order.

In a running training (`ddpdoctor run`) each rank tells names and shapes of what it gives to DDP: names that come in
another order are told at once, and all is compared when DDP raises.

## How to mend it

Compute sizes on rank 0 and broadcast them, or from the whole data set; sort before iterating.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Buffer,
    Description,
    Evidence,
    Failed,
    Finding,
    Fix,
    Parameter,
    Place,
    Record,
    Severity,
    Table,
    Training,
    Wrapping,
    log_pattern,
    loops_through_sets,
    place,
    probe,
    watch,
)

from .._alike import in_another_order

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP507", Severity.ERROR)
Piece = Parameter | Buffer


@probe
def as_built(model: ModelExam) -> Iterator[Finding]:
    """Yield the name of the first position at which a rank differs from rank 0."""
    for what in ("parameter", "buffer"):
        lists = [_pieces(built, what) for built in model.ranks]
        for rank, pieces in enumerate(lists):
            if (position := _first_difference(lists[0], pieces)) is not None:
                yield _finding(what, rank, position, lists)
                return
    if model.reordered:
        yield _by_hash_seed(model)


def _by_hash_seed(model: ModelExam) -> Finding:
    names = [each.name for each in model.model.parameters]
    at = next(at for at, (one, other) in enumerate(zip(names, model.reordered, strict=True)) if one != other)
    loops = [(file, each) for file in model.model.files for each in loops_through_sets(file)]
    file, loop = loops[0] if len(loops) == 1 else (model.model.source or "", None)
    line = linecache.getline(file, loop.lineno).rstrip() if loop else ""
    over = ast.get_source_segment("".join(linecache.getlines(file)), loop.iter) if loop else None
    known = over and loop and loop.iter.end_lineno == loop.lineno
    return Finding(
        f"the order of the parameters depends on the hash seed of the process, which is another on each rank: "
        f"parameter {at} is {names[at]} with one, and {model.reordered[at]} with another; DDP pairs them by position",
        (
            Evidence(f"parameter {at} is {names[at]}", "one order on all ranks", "built with a hash seed"),
            Evidence(f"parameter {at} is {model.reordered[at]}", "one order on all ranks", "built with another one"),
        ),
        Fix(
            "sort the set before the model is built from it",
            diff=f"-{line}\n+{line.replace(over, f'sorted({over})', 1)}"
            if known and over
            else "-for name in names:  # a set\n+for name in sorted(names):",
        ),
        Place(file=file or None, line=loop.lineno if loop else None),
    )


def _pieces(built: Description, what: str) -> Sequence[Piece]:
    return built.parameters if what == "parameter" else built.buffers


def _first_difference(one: Sequence[Piece], other: Sequence[Piece]) -> int | None:
    """Names count when the same ones come in another order: then DDP pairs the wrong ones."""
    reordered = {piece.name for piece in one} == {piece.name for piece in other}
    for position, (here, there) in enumerate(zip_longest(one, other)):
        if here is None or there is None or _size(here) != _size(there) or (reordered and here.name != there.name):
            return position
    return None


def _size(piece: Piece) -> tuple[object, ...]:
    return piece.shape, piece.dtype, getattr(piece, "trainable", False)


def _finding(what: str, rank: int, position: int, lists: list[Sequence[Piece]]) -> Finding:
    at = [str(pieces[position]) if position < len(pieces) else "(no more)" for pieces in lists]
    return Finding(
        f"rank {rank} builds another model than rank 0: {what} {position} is {at[rank]}, on rank 0 {at[0]}",
        (Evidence(at[rank], at[0], f"rank {rank}"),),
        Fix(
            "let every rank build the same model: take sizes from rank 0",
            diff=" size = [count_classes(shard)]\n+torch.distributed.broadcast_object_list(size, src=0)\n"
            " model = build_model(size[0])",
        ),
        table=Table(
            ("rank", f"{what}s", f"{what} {position}"),
            tuple((number, len(pieces), at[number]) for number, pieces in enumerate(lists)),
        ),
    )


COUNTS = r"but Rank (\d+) has (\d+) params, while rank (\d+) has inconsistent (\d+) params"
SIZES = (
    r"(?:params|replicas\[\d+\])\[(\d+)\] in this process with sizes (\[[\d, ]*\])"
    r" appears not to match sizes of the same param in process (\d+)"
)


@log_pattern(COUNTS)
def by_their_number(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the numbers; 0 is a receive buffer that was never filled: the communication failed, not the models."""
    if match[4] == "0" or match[2] == match[4]:
        return
    yield Finding(
        f"the ranks build different models: {match[2]} parameters on rank {match[1]}, {match[4]} on rank {match[3]}",
        (record.proof(match, "the same number of parameters on each rank"),),
        COMPARE,
        record.place,
    )


@log_pattern(SIZES)
def by_their_sizes(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the parameter, by its position among those that require a gradient."""
    number = int(match[1])
    name = f" ({record.parameters[number]})" if number < len(record.parameters) else ""
    yield Finding(
        f"the ranks build different models: parameter {number}{name} has sizes {match[2]} here, "
        f"and other sizes on rank {match[3]}",
        (record.proof(match, f"the sizes of rank {match[3]}"),),
        COMPARE,
        record.place,
    )


@watch(Wrapping)
def as_wrapped(event: Wrapping, training: Training) -> Iterator[Finding]:
    """Compare the order of the names that the ranks give to DDP, which does not notice another one."""
    ranks = in_another_order(training)
    if not ranks or event not in ranks.values():
        return
    names = {rank: [name for name, _ in each.parameters] for rank, each in ranks.items()}
    at = next(at for at, those in enumerate(zip(*names.values(), strict=True)) if len(set(those)) > 1)
    yield Finding(
        "the ranks build the parameters of the model in another order, and DDP pairs them by position",
        tuple(
            Evidence(f"parameter {at} is {each[at]}, of {len(each)}", "one order on all ranks", f"rank {rank}")
            for rank, each in [*names.items()][:8]
        ),
        Fix(
            "sort what the model is built from, such as a set, whose order each process has of its own",
            diff="-for name in names:  # a set\n+for name in sorted(names):",
        ),
        place(event.site),
    )


@watch(Failed)
def while_training(event: Failed, training: Training) -> Iterator[Finding]:
    """Compare what the ranks gave to DDP."""
    built = training.by_rank(Wrapping)
    one = next(iter(built.values()), None)  # the lowest rank, and the next that differs from it
    here = next((each for each in built.values() if one and each.parameters != one.parameters), None)
    if not re.search(f"{COUNTS}|{SIZES}", event.text) or here is None or one is None:
        return
    pairs = enumerate(zip_longest(one.parameters, here.parameters))
    for position, (there, mine) in pairs:
        if there is None or mine is None or there[1] != mine[1]:
            at_one, at_mine = (f"{each[0]} {list(each[1])}" if each else "(no more)" for each in (there, mine))
            yield Finding(
                f"rank {here.rank} builds another model than rank {one.rank}: parameter {position} is {at_mine}, "
                f"on rank {one.rank} {at_one}",
                (
                    Evidence(f"{at_mine}, of {len(here.parameters)}", at_one, f"rank {here.rank}"),
                    Evidence(f"{at_one}, of {len(one.parameters)}", "", f"rank {one.rank}"),
                ),
                COMPARE,
                place(event.site, rank=event.rank),
            )
            return


COMPARE = Fix(
    "take sizes (vocabulary, classes, random architecture) from rank 0; print what differs on each rank before DDP:",
    diff="+print(dist.get_rank(), [(n, tuple(p.shape)) for n, p in model.named_parameters() if p.requires_grad])\n"
    "+sizes = [vocabulary_size]\n+dist.broadcast_object_list(sizes)  # before the model is built",
)
