"""The split sizes of all_to_all_single: what one rank gives another one is what that expects of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Finding, Fix, Table, place

from ...hangs._told import short

if TYPE_CHECKING:
    from ...hangs._pairs import Pair

ROWS = Fix(
    "exchange the numbers of rows first: what rank i sends to rank j is what rank j expects of rank i",
    diff="+dist.all_to_all_single(output_splits, input_splits)   # tensors of one number for each rank\n"
    "+output = input.new_empty(int(output_splits.sum()), *input.shape[1:])\n"
    " dist.all_to_all_single(output, input, output_splits.tolist(), input_splits.tolist())",
)


def splits_differ(
    pair: Pair, splits: tuple[int, int, int, int], seen: tuple[Evidence, ...], at: Table | None
) -> Finding:
    """Return which rank sends another number of rows than is expected of it."""
    giver, gives, taker, takes = splits
    calls = dict(pair)
    return Finding(
        f"{calls[giver].operation} at {short(calls[giver].site)}: rank {giver} gives rank {taker} {gives} rows, and "
        f"rank {taker} expects {takes} of it",
        (
            Evidence(f"input_split_sizes[{taker}] = {gives}", f"{takes}", f"rank {giver}"),
            Evidence(f"output_split_sizes[{giver}] = {takes}", f"{gives}", f"rank {taker}"),
            *seen,
        ),
        ROWS,
        place(calls[giver].site),
        table=at,
    )
