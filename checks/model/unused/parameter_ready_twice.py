"""A parameter's gradient is computed twice in one backward.

## What happens

Reentrant activation checkpointing runs a backward inside the backward. A parameter that is used in two
checkpointed places, or with `find_unused_parameters=True` in one, reports its gradient to DDP twice, and DDP
raises "Expected to mark a variable ready only once".

## How to be sure

ddpdoctor takes three steps under DDP, and where they raise this, three more with
`static_graph=True`.

## How to mend it

`torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`, which has no such limit; for
transformers `model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})`. Or
pass `static_graph=True` to DDP if every step uses the same parameters.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU, both cures too. Source: PyTorch documentation,
"torch.utils.checkpoint" and "DistributedDataParallel".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    READY_TWICE,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
)

from .._logs import SEARCHES, beside, outside_forward
from .._words import end
from ._reentrant import CHECKPOINTED, MESSAGE, reentrant_call

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP504", Severity.ERROR)
INDEX = re.compile(r"Parameter at index (\d+)")


@probe
def in_a_small_job(model: ModelExam) -> Iterator[Finding]:
    """Yield which parameter it is: the error has its index among the trainable ones only."""
    steps = model.steps
    steps.under_ddp()
    raised = steps.raised(READY_TWICE)
    if not raised:
        return
    found = INDEX.search(raised[0].message)
    trainable = model.model.trainable
    named = f": {trainable[int(found[1])].name}" if found and int(found[1]) < len(trainable) else ""
    cured = steps.cured_by("static_graph")
    yield Finding(
        f"DDP got the gradient of one parameter of {model.model.kind} twice in one backward{named}",
        (Evidence(end(raised[0]), "three steps under DDP go through", f"rank {raised[0].rank}"),),
        Fix(
            "use the checkpointing that is not reentrant"
            + ("; or static_graph=True (tried here: three steps go through)" if cured else ""),
            diff="-checkpoint(block, x, use_reentrant=True)\n+checkpoint(block, x, use_reentrant=False)"
            + ("\nor\n-model = DDP(model)\n+model = DDP(model, static_graph=True)" if cured else ""),
        ),
    )


TRAINER = "transformers/trainer.py"
NAMED = r"Parameter at index (\d+)(?: with name (\S+))? has been marked as ready twice"


@log_pattern(MESSAGE, context=(NAMED, CHECKPOINTED))
def checkpointed_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name activation checkpointing as the cause where the log shows that it is used."""
    if shown := beside(record, log, CHECKPOINTED):
        call = reentrant_call(record)
        where = (Evidence(call.code, "use_reentrant=False", f"{call.file}:{call.line}"),) if call else ()
        proofs = (record.proof(match, "one gradient for each parameter and backward"), *shown)
        yield Finding(
            f"{_subject(record, log)} was computed twice in one backward: activation checkpointing is reentrant",
            (*proofs, *where, *beside(record, log, NAMED)),
            call.mended() if call else _not_reentrant(record),
            Place(file=call.file, line=call.line, rank=record.rank, host=record.node) if call else record.place,
        )


@log_pattern(MESSAGE, context=(NAMED, CHECKPOINTED, SEARCHES))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave open what else prints this, where nothing of checkpointing is to be seen."""
    if log.first(CHECKPOINTED) or outside_forward(record) or beside(record, log, SEARCHES):
        return
    yield Finding(
        f"{_subject(record, log)} was computed twice in one backward",
        (record.proof(match, "one gradient for each parameter and backward"), *beside(record, log, NAMED)),
        NOT_REENTRANT,
        record.place,
        ambiguity=Ambiguity(
            (
                "reentrant activation checkpointing (gradient_checkpointing without use_reentrant=False)",
                "find_unused_parameters=True and several forwards before backward (forward-called-twice)",
                "find_unused_parameters=True and a use outside of forward (param-used-outside-forward)",
            ),
            "grep -rnE 'checkpoint\\(|gradient_checkpointing|find_unused_parameters|\\.module\\.' --include=*.py .",
        ),
    )


@log_pattern(r"assert len\(set\(p\.ds_id for p in self\.params_in_ipg_bucket\)\)")
def in_logs_of_deepspeed(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """ZeRO 3 asserts that no parameter is twice among the gradients that it is about to reduce."""
    yield Finding(
        "DeepSpeed's ZeRO 3 got the gradient of one parameter twice in one backward",
        (record.proof(match, "one gradient for each parameter and backward"),),
        NOT_REENTRANT,
        record.place,
        ambiguity=Ambiguity(
            (
                "reentrant activation checkpointing (gradient_checkpointing without use_reentrant=False)",
                "the model, or one of its layers, runs twice before backward (forward-called-twice)",
            ),
            "grep -rnE 'checkpoint\\(|gradient_checkpointing' --include=*.py .",
        ),
    )


def _not_reentrant(record: Record) -> Fix:
    """Return how checkpointing is told not to be reentrant, by the Trainer's arguments where the Trainer trains."""
    if any(TRAINER in frame.file for frame in record.frames):
        return Fix(
            "use the checkpointing that is not reentrant",
            diff="-TrainingArguments(gradient_checkpointing=True, ...)\n"
            '+TrainingArguments(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False})',
        )
    return NOT_REENTRANT


def _subject(record: Record, log: Log) -> str:
    found = log.first(NAMED)
    if found is None:
        return "a parameter's gradient"
    number = int(found[1][1])
    name = found[1][2] or (record.parameters[number] if number < len(record.parameters) else "")
    return f"the gradient of {name}" if name else f"the gradient of parameter {number}"


NOT_REENTRANT = Fix(
    "use the checkpointing that is not reentrant; where all steps use the same parameters, static_graph=True helps too",
    diff="-model.gradient_checkpointing_enable()\n"
    '+model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})\n'
    "or\n-checkpoint(block, x)\n+checkpoint(block, x, use_reentrant=False)",
)
