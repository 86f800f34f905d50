"""The transformers Trainer has removed columns of the data set: forward takes none of these names.

## What happens

The Trainer passes each column to `model.forward` by its name, and with `remove_unused_columns=True`, the default,
drops those that forward has no parameter for. Where no name fits, nothing is left: "No columns in the dataset match the
model's forward method signature", in older versions "Invalid key: 17 is out of bounds for size 0" from datasets.

Where some fit, the others are gone before a `data_collator`, `compute_loss` or `training_step` of one's own sees them:
a `KeyError` with the column's name.

## How to be sure

Compare `dataset.column_names` with the parameters of `model.forward`. A wrapper of one's own whose forward takes
`*args, **kwargs` hides them. After a KeyError, `print(train_dataset[0].keys())` says whether the data set has the
column.

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

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP672", Severity.ERROR)
MOST = 4  # names that are shown
HANDS_BATCH = {"training_step", "prediction_step"}  # of the Trainer: they call compute_loss


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


@log_pattern(r"(?m)^KeyError: '(?P<column>\w{1,60})'$")
def of_one_column(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the column that the user's code asks a row, or a batch, of the Trainer for."""
    column = match["column"]
    asked = re.search(rf"""(?:\[|\.pop\()["']{column}["']""", record.text)
    if asked and _given_by_the_trainer(record):
        own = next((each.function for each in reversed(record.frames) if not each.function.startswith("<")), "")
        yield Finding(
            f"the Trainer gives {own} no column {column!r}: it leaves those that forward has a parameter for",
            (record.proof(match, f"{column!r} in what the Trainer hands over"),),
            Fix(
                "leave all columns in, and take out what forward does not take where the loss is computed",
                diff="+TrainingArguments(remove_unused_columns=False, ...)",
            ),
            record.place,
            ambiguity=Ambiguity(
                (
                    f"remove_unused_columns, which is on: model.forward has no parameter {column!r}",
                    f"the data set itself has no column {column!r}",
                ),
                "python -c 'from train import dataset; print(dataset[0].keys())'   # your own module",
            ),
        )


def _given_by_the_trainer(record: Record) -> bool:
    """Whether the user's function that fails was called by the Trainer: on rows, or on a batch."""
    frames = record.frames
    if not frames or not frames[-1].is_users:
        return False
    own = next((at for at in range(len(frames) - 1, -1, -1) if not frames[at].is_users), None)
    if own is None:
        return False
    caller = frames[own]
    file = caller.file.replace("\\", "/")
    if file.endswith("transformers/trainer.py"):
        return caller.function in HANDS_BATCH
    within = any(each.file.replace("\\", "/").endswith("transformers/trainer.py") for each in frames[:own])
    if file.endswith("transformers/trainer_utils.py"):
        return within and caller.function == "__call__"
    is_row = frames[own + 1].function.startswith("__getitem")
    return within and file.endswith("torch/utils/data/_utils/fetch.py") and not is_row


def _names(listed: str) -> list[str]:
    return list(dict.fromkeys(each.strip(" '\"") for each in listed.split(",") if each.strip(" '\"")))
