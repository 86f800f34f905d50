"""The model hub refuses the ranks' requests: there are too many at once (429).

## What happens

Every rank asks the hub for the same files, configuration and data sets, and with workers and hosts that makes thousands
of requests within minutes from one address. The hub answers "429 Client Error: Too Many Requests for url", and the
rank that got it ends; the others wait for it. With one host it worked. (Newer clients wait and try again: that warning
is harmless.)

## How to be sure

The number 429 in the message has no other meaning.

## How to mend it

Download once, before the launch, and let the ranks read the disk: HF_HUB_OFFLINE=1. Or let the first rank of each host
go ahead (`with accelerator.main_process_first()`). Requests with a token have a higher limit.

## Versions and sources

Holds for huggingface_hub, datasets and transformers, whatever the torch. Source: huggingface_hub's utils/_http.py;
Hugging Face Hub documentation, "Rate limits".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP430", Severity.ERROR)


@log_pattern(
    r"(?:HTTPError|RequestError|OSError)\b[^\n]{0,200}?429 Client Error: Too Many Requests for (?:url|URL)"
    r"|(?:^|\n)429 Client Error: Too Many Requests for (?:url|URL)|HTTP status client error \(429 Too Many Requests\)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Only an exception: a request that is tried again is no failure."""
    yield Finding(
        "the hub refused a request: too many at once (429)",
        (record.proof(match, "one download for all ranks, before they start"),),
        Fix(
            "download once and let the ranks read from the disk",
            command="hf download ORGANISATION/NAME && HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 torchrun ...",
        ),
        record.place,
    )
