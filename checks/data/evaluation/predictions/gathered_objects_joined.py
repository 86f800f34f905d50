"""A tuple that holds more than tensors is gathered, and comes back as the tuples of all processes end to end.

## What happens

`accelerator.gather_for_metrics((predictions, targets))` joins tensors: two go in, and two come out. Where an element is
no tensor (a list, a string, a number), it gathers objects instead, and so does `gather_object`: the tuples of all
processes are put one after the other. Two values go in, and two for each process come out: "too many values to unpack
(expected 2)". With one process nothing is joined, and the same line works.

## How to be sure

Look at what is handed over: `.tolist()`, `tokenizer.batch_decode(...)` or a Python number make an object of a tensor.
`print(len(accelerator.gather_for_metrics(values)))` gives the number of values times the number of processes.

## How to mend it

Gather tensors, and make lists of what comes back; or gather each list by itself:

    predictions, targets = accelerator.gather_for_metrics((logits.argmax(-1), targets))
    texts = accelerator.gather_for_metrics(texts, use_gather_object=True)

## Versions and sources

Holds for accelerate 0.22 to 1.15 with torch 2.2 to 2.13. Sources: accelerate/accelerator.py, `gather_for_metrics`;
accelerate/utils/operations.py, `_gpu_gather_object`; kamalkraj/e5-mistral-7b-instruct#5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP623", Severity.ERROR)
GATHERS = re.compile(r"\bgather_(?:for_metrics|object)\(")


@log_pattern(r"ValueError: too many values to unpack \(expected (?P<count>\d+)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Look whether the line that unpacks them is the one that gathers."""
    lines = record.text[: match.start()].rstrip().splitlines()
    code = next((line for line in reversed(lines) if line.strip(" ^~")), "")
    found = GATHERS.search(code)
    if found is None:
        return
    yield Finding(
        f"objects are gathered as a tuple of {match['count']}: {found[0]}...) returns the tuples of all processes, end "
        "to end",
        (record.proof(match, "tensors, or one list at a time"),),
        Fix(
            "gather tensors together, and each list by itself",
            diff="-labels, texts = accelerator.gather_for_metrics((labels, texts))\n"
            "+labels = accelerator.gather_for_metrics(labels)\n"
            "+texts = accelerator.gather_for_metrics(texts, use_gather_object=True)",
        ),
        record.place,
    )
