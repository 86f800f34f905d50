"""The transformers Trainer has removed all columns of the data set: none has a name that forward takes.

## What happens

The Trainer passes each column to `model.forward` by its name, and with `remove_unused_columns=True`, the default,
drops those that forward has no parameter for. Where no name fits, nothing is left: "No columns in the dataset match the
model's forward method signature", in older versions "Invalid key: 17 is out of bounds for size 0" from datasets.

## How to be sure

Compare `dataset.column_names` with the parameters of `model.forward`. A wrapper of one's own whose forward takes
`*args, **kwargs` hides them.

## How to mend it

Rename the columns, or name the parameters of forward as the columns:

    dataset = dataset.rename_columns({"text_ids": "input_ids", "target": "labels"})

or leave the columns in, and make of them what forward takes in a `data_collator`:

    TrainingArguments(remove_unused_columns=False, ...)

## Versions and sources

Source: transformers/trainer.py, `_remove_unused_columns`. Seen with transformers 5.23 and torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP672", Severity.ERROR)
MOST = 4  # names that are shown


@log_pattern(
    r"No columns in the dataset match the model's forward method signature:? \((?P<takes>[^)]*)\)\. "
    r"The following columns have been ignored: \[(?P<has>[^\]]*)\]"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the columns, and what forward takes."""
    has, takes = _names(match["has"]), _names(match["takes"])
    wanted = [each for each in takes if each not in {"label", "label_ids"}] or takes
    yield Finding(
        f"the Trainer has removed all columns ({', '.join(has[:MOST])}): forward takes {', '.join(wanted[:MOST])}",
        (record.proof(match, "columns that have the names of forward's parameters"),),
        Fix(
            "rename the columns, or leave them to a data_collator of your own",
            diff=f'+dataset = dataset.rename_column(COLUMN, "{wanted[0]}")   # of {", ".join(has[:MOST])}\n'
            "or\n+TrainingArguments(remove_unused_columns=False, ...)",
        ),
        record.place,
    )


def _names(listed: str) -> list[str]:
    return list(dict.fromkeys(each.strip(" '\"") for each in listed.split(",") if each.strip(" '\"")))
