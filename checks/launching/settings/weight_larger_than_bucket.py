"""A weight is larger than the bucket in which the trainer hands weights on to the inference engine.

## What happens

After each update verl sends the new weights to vLLM or SGLang in buckets of one size. A single tensor, as the embedding
of a large vocabulary, can be larger than a bucket: "Weight model.embed_tokens.weight(torch.Size([248320, 5120]),
torch.bfloat16) is too large to fit in the bucket ... increase rollout.update_weights_bucket_megabytes(2048 MB)". All
ranks end at the first hand-over, before the first step is done.

## How to be sure

The message has the shape, the type and the size of the bucket: the product of the shape and the bytes of an element.

## How to mend it

Raise the setting above the size of that tensor. Each GPU holds such a bucket beside its weights while they are handed
on, so leave it room (gpu_memory_utilization).

## Versions and sources

Source: verl-project/verl#5779 and #5952, verl 0.7, workers/rollout. It does not depend on torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP487", Severity.ERROR)
BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2, "float8_e4m3fn": 1, "int8": 1, "uint8": 1}
MEGABYTE = 1 << 20
STEP = 1024  # MB: the setting is given in whole GB


@log_pattern(
    r"Weight (?P<name>[\w.]{1,200})\(torch\.Size\(\[(?P<shape>[\d, ]{1,60})\]\), torch\.(?P<type>\w{1,20})\) is too "
    r"large to fit in the bucket\.? ?Please increase (?P<setting>[\w.]{1,100}) ?\((?P<size>\d{1,9}) ?MB\)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compute what the tensor needs."""
    numbers = math.prod(int(each) for each in match["shape"].split(",") if each.strip())
    needed = math.ceil(numbers * BYTES.get(match["type"], 4) / MEGABYTE)
    size = max(needed, int(match["size"]) + 1)
    size = math.ceil(size / STEP) * STEP
    setting = match["setting"]
    whole = setting if setting.startswith("actor_rollout_ref.") else f"actor_rollout_ref.{setting}"
    yield Finding(
        f"{match['name']} takes {needed:,} MB, and weights are handed to the inference engine in buckets of "
        f"{int(match['size']):,} MB",
        (record.proof(match, f"a bucket of at least {needed:,} MB"),),
        Fix("make the bucket larger than the largest tensor", command=f"... {whole}={size}"),
        record.place,
    )
