"""fully_shard gathers a weight in float8, and its rows do not divide by the ranks.

## What happens

torchao's `enable_fsdp_float8_all_gather=True` casts each rank's shard to float8 before fully_shard gathers it, and one
scale for the whole is computed from all shards. fully_shard cuts a weight by its rows. Where they do not divide, the
last ranks have fewer, or none:

- none: the largest value of nothing is asked for, "max(): Expected reduction dim to be specified for input.numel() ==
  0", on the ranks that have no rows;
- fewer: the shards are sent without padding, and the weight does not fit what came together: "setStorage: sizes [4096,
  1024], strides [1024, 1], storage offset 0, and itemsize 1 requiring a storage size of 4194304 are out of bounds for
  storage of size 4190208".

Without float8 all-gather fully_shard pads the shards itself, and the same model trains.

## How to be sure

    print([n for n, m in model.named_modules() if isinstance(m, nn.Linear) and m.out_features % world_size])

Each name is a layer whose shards are uneven.

## How to mend it

Leave those layers out of `convert_to_float8_training` (its `module_filter_fn`), shard over a number of GPUs that
divides the rows, or gather in the higher precision (`enable_fsdp_float8_all_gather=False`).

## Versions and sources

Holds for torch 2.4 and later with torchao up to 0.16. Source: torchao, float8/fsdp_utils.py and float8_utils.py,
`tensor_to_amax`; pytorch/ao#1938 and pytorch/ao#3982; not run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1597", Severity.ERROR)
GATHERED = re.compile(r"float8[/\\](?:fsdp_utils|float8_utils|float8_linear)\.py|\bfsdp_(?:pre|post)_all_gather\b")
"""torchao's part of the gathering, in a traceback."""
FIX = Fix(
    "leave the layers whose rows do not divide by the ranks in their own precision; or gather them so",
    diff="-convert_to_float8_training(model, config=config)\n"
    "+divides = lambda m, name: not isinstance(m, nn.Linear) or m.out_features % dist.get_world_size() == 0\n"
    "+convert_to_float8_training(model, config=config, module_filter_fn=divides)\n"
    "+# or: Float8LinearConfig(enable_fsdp_float8_all_gather=False)",
)


@log_pattern(r"RuntimeError: max\(\): Expected reduction dim to be specified for input\.numel\(\) == 0")
def of_an_empty_shard(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The same words come of any maximum of nothing: the frames tell whose it is."""
    if GATHERED.search(record.text):
        who = f"rank {record.rank}" if record.rank is not None else "a rank"
        yield Finding(
            f"{who} has no rows of a weight that is gathered in float8: there are more ranks than rows, or the rows do "
            "not divide",
            (record.proof(match, "out_features % ranks == 0 for each layer that torchao converts"),),
            FIX,
            record.place,
        )


@log_pattern(
    r"RuntimeError: setStorage: sizes \[(?P<sizes>[\d, ]{1,60})\][^\n]{0,120}? itemsize 1 requiring a storage size of "
    r"(?P<needs>\d+) are out of bounds for storage of size (?P<has>[1-9]\d*)"
)
def of_an_uneven_shard(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """One byte an element, and some rows are missing: the shards of the last ranks were sent unpadded."""
    if not GATHERED.search(record.text):
        return
    rows = match["sizes"].split(",")[0].strip()
    yield Finding(
        f"a weight of {rows} rows is gathered in float8, and {int(match['needs']) - int(match['has'])} of its "
        f"{match['needs']} bytes are missing: {rows} rows do not divide by the ranks",
        (record.proof(match, "out_features % ranks == 0 for each layer that torchao converts"),),
        FIX,
        record.place,
    )
