"""The ranks call the same collective with tensors of different sizes.

## What happens

all_reduce, all_gather and reduce_scatter want the same shape and dtype on every rank. A last batch that is shorter, a
number of detections that differs, an uneven shard: NCCL then hangs, or mixes up numbers. With
TORCH_DISTRIBUTED_DEBUG=DETAIL torch says so: "Collectives differ in the following aspects: Tensor Tensor shapes:
34112vs 34113" (or dtypes, or devices). NCCL over sockets says "message truncated : receiving 4096 bytes instead of
2048".

## How to be sure

Print the tensor's shape on each rank in the line of the traceback. A difference of one is an uneven shard. Where the
log has only the numbers of bytes, start with `TORCH_DISTRIBUTED_DEBUG=DETAIL`: torch then raises at the first
collective that does not fit.

## How to mend it

Best first: pad to the largest size (all_reduce the maximum first) and cut afterwards; `all_gather_object` for things
of any size; `drop_last=True` for batches.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupWrapper.cpp; NCCL, src/transport/net_socket.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from linecache import getline

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Communication,
    Evidence,
    Finding,
    Fix,
    Log,
    PeerLost,
    Record,
    Severity,
    Stalled,
    Training,
    called_at,
    log_pattern,
    place,
)

from ...hangs._hangs import on_hang
from ...hangs._kinds import Hang
from ...hangs._losses import Loss, on_loss
from ...hangs._pairs import overrun
from ...hangs._told import noticed, seen, short, table
from ...hangs.calls._apart import mismatch
from ...hangs.calls._compared import first_mismatch, unlike_splits
from ...timeouts._flight import OTHER_TENSORS, proofs
from ...timeouts._watchdog import named
from .._mismatch import Mismatch, both_sides, on_mismatch
from ._padding import FIX, PAD, PADDED, dimensions_that_differ, padded, padded_by_accelerate
from ._splits import ROWS, splits_differ

AILMENT = Ailment("DDP716", Severity.ERROR)
DTYPE = Fix(
    "give the tensor one dtype on all ranks: of an empty list, or of an int, torch makes another one",
    diff="-total = torch.tensor(sum(losses))\n+total = torch.tensor(float(sum(losses)))\n dist.all_reduce(total)",
)
OBJECTS = Fix(
    "give lists of one length on all ranks",
    diff="-objects = [None]\n+objects = [None] * number_of_objects_on_src\n dist.broadcast_object_list(objects, src=0)",
)


@on_mismatch(Mismatch.SHAPE)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The operation is the same, its tensors are not."""
    both = both_sides(record, log)
    shapes = [str(list(each.shape)) for each in both]
    yield Finding(
        "the ranks call one collective with different tensors: " + "; ".join(map(str, both)),
        (record.proof(match, "the same shape and dtype on all ranks"),),
        padded(dimensions_that_differ(*shapes)) if len(shapes) > 1 else FIX,
        record.place,
    )


@log_pattern(
    r"NET/Socket : (?:peer \S+ )?message truncated : receiving (\d+) bytes instead of (\d+)"
    r"|collective mismatch error,? local size (\d+) remote (?:size )?(\d+)"
)
def in_logs_of_nccl(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL sees another number of bytes than it asked for."""
    got, wanted = (number for number in match.groups() if number)
    yield Finding(
        f"a peer sent {got} bytes where this rank expected {wanted}",
        (record.proof(match, "as many bytes on both sides"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            (
                "the ranks call a collective with different sizes",
                "NCCL_ALGO, NCCL_PROTO or NCCL's version differ between hosts",
            ),
            "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ...   # raises at the first collective that does not fit",
        ),
    )


PROCESS = r"- Process (?P<rank>\d+): (?P<shape>\[[^\n]{0,300}\])"


@log_pattern(
    r"Cannot apply desired operation due to shape mismatches\. All shapes across devices must be valid",
    context=(PROCESS,),
)
def in_logs_of_accelerate(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Accelerate compares the shapes by itself where ACCELERATE_DEBUG_MODE=1."""
    text = "\n".join((record.text, *(each.text for each, _ in log.find(PROCESS))))
    shapes = {found["rank"]: found["shape"] for found in re.finditer(PROCESS, text)}
    yield Finding(
        "the processes call one operation of Accelerate with different tensors"
        + (": " if shapes else "")
        + "; ".join(f"process {rank} gives {shape}" for rank, shape in sorted(shapes.items())),
        (record.proof(match, "the same shape on all processes"),),
        PAD,
        record.place,
    )


@log_pattern(r"Culprit rank (?P<rank>\d+); Error type: SIZE_OR_SYNTAX_MISMATCH[^\n]*")
def in_the_analyser_of_torch(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The tool of torch has compared the dumps of the flight recorders."""
    yield Finding(
        f"rank {match['rank']} calls a collective with other sizes or another dtype than the others",
        (record.proof(match, "the same size and dtype on all ranks"),),
        FIX,
        record.place,
    )


@log_pattern(OTHER_TENSORS)
def in_dumps(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The flight recorders of two ranks have one operation on different tensors."""
    yield Finding(match["said"], proofs(record, "the same size and dtype on all ranks"), FIX, record.place)


@on_hang(Hang.SHAPES)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Yield the name of the first collective to which two ranks gave different shapes."""
    if pair := first_mismatch(event.ranks):
        (rank, ours), (other, theirs) = pair
        if splits := unlike_splits(rank, ours, other, theirs):
            yield splits_differ(pair, splits, seen(event), table(event))
            return
        yield Finding(
            f"{ours.operation} at {short(ours.site)}: rank {rank} gives shape {ours.shapes}, "
            f"rank {other} {theirs.shapes}",
            (
                Evidence(
                    ours.shapes, "one shape on all ranks", f"rank {rank}, {ours.operation} {ours.number} of its group"
                ),
                Evidence(theirs.shapes, "", f"rank {other}, {theirs.operation} {theirs.number} of its group"),
                *seen(event),
            ),
            _fix(ours, theirs),
            place(ours.site),
            table=table(event),
        )


def _fix(ours: Communication, theirs: Communication) -> Fix:
    """Return what the line calls for: a framework's own padding, lists of one length, one dtype."""
    site = ours.site
    dimensions = dimensions_that_differ(ours.shapes, theirs.shapes)
    if site and called_at(site.file, site.line, PADDED):
        return padded_by_accelerate(site, dimensions)
    if site and "object_list" in getline(site.file, site.line):
        return OBJECTS
    return DTYPE if re.findall(r"\[.*?\]", ours.shapes) == re.findall(r"\[.*?\]", theirs.shapes) else padded(dimensions)


@on_loss(Loss.SHAPES)
def by_those_who_lost_it(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Yield the first collective with different shapes, where a rank is gone without a word."""
    pair = mismatch(event, training)
    assert pair is not None  # noqa: S101 - else it would be another loss
    (rank, ours), (other, theirs) = pair
    lost = noticed(event)
    if splits := unlike_splits(rank, ours, other, theirs):
        yield splits_differ(pair, splits, lost, None)
        return
    yield Finding(
        f"{ours.operation} at {short(ours.site)}: rank {rank} gives shape {ours.shapes}, rank {other} {theirs.shapes}; "
        f"{named(list(event.gone))} ended there without an exception",
        (
            Evidence(
                ours.shapes, "one shape on all ranks", f"rank {rank}, {ours.operation} {ours.number} of its group"
            ),
            Evidence(theirs.shapes, "", f"rank {other}, {theirs.operation} {theirs.number} of its group"),
            *lost,
        ),
        _fix(ours, theirs),
        place(ours.site),
    )


@on_loss(Loss.OVERRUN)
def by_a_message_too_long(event: PeerLost) -> Iterator[Finding]:
    """Yield the message that is longer than what a rank that is gone received it into."""
    found = overrun(event.progress)
    if found is None or found.rank not in event.gone:
        return
    yield Finding(
        f"recv at {short(found.takes.site)}: rank {found.rank} has room for {found.takes.shapes}, and rank "
        f"{found.other} sends {found.gives.shapes} at {short(found.gives.site)}; gloo has ended rank {found.rank}",
        (
            Evidence(found.takes.shapes, "as much as is sent", f"rank {found.rank}, recv at {short(found.takes.site)}"),
            Evidence(found.gives.shapes, "", f"rank {found.other}, send at {short(found.gives.site)}"),
            *noticed(event),
        ),
        Fix(
            "make room for what is sent; send its shape before it where that varies",
            diff="-buffer = torch.empty(8, 8)\n+buffer = torch.empty(8, 16)   # as the other rank sends it\n"
            " dist.recv(buffer, src=0)",
        ),
        place(found.takes.site, rank=found.rank),
    )


@log_pattern(r"gloo/alltoallv?\.cc:\d+\] inLengthPerRank\[myRank\] == outLengthPerRank\[myRank\]")
def of_the_split_sizes(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Gloo compares what a rank sends itself with what it expects of itself."""
    yield Finding(
        "the split sizes of all_to_all_single do not match: this rank sends itself another number of rows than it "
        "expects of itself",
        (record.proof(match, "input_split_sizes[rank] == output_split_sizes[rank]"),),
        ROWS,
        record.place,
    )


@log_pattern(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
def in_logs_of_gloo(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Gloo gets more bytes than it made room for."""
    yield Finding(
        f"a peer sent {match[1]} bytes where this rank made room for {match[2]}",
        (record.proof(match, "as many bytes on both sides"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            ("the ranks call a collective with different sizes", "the ranks call different collectives"),
            "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ...   # raises at the first collective that does not fit",
        ),
    )
