"""The model asks a DataParallel replica for its parameters, and replicas have none.

## What happens

Since torch 1.5 a replica of DataParallel holds its weights as plain attributes: `next(self.parameters())` in forward,
or a property such as `device` or `dtype` that is built on it, finds nothing and raises "StopIteration: Caught
StopIteration in replica 0 on device 0". In torch before 1.13 the items of
an `nn.ParameterList` or `nn.ParameterDict` are gone in a replica for the same reason: an IndexError or KeyError out of
torch/nn/modules/container.py. With one GPU DataParallel calls the model itself and the same code works.

## How to be sure

The lines below "Original Traceback" end in `next(self.parameters())`, or in a property that reads it.
Replica 0 fails as the others do, so no share of a batch is missing.

In a source (`ddpdoctor lint`): `forward` of a class calls `next(self.parameters())`, and DataParallel is given its
object.

## How to mend it

Take device and dtype from the input (`x.device`, `x.dtype`) or from a registered buffer; better, train
with DDP, where every process has the real model.

## Versions and sources

Holds for torch 1.5 to 2.13. Source: torch/nn/parallel/replicate.py, and the release notes of torch 1.5.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DATA_PARALLEL,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    lint,
    log_pattern,
)

from .._logs import TRAINER, beside

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP529", Severity.ERROR)
MESSAGE = r"Caught StopIteration in replica (\d+) on device (\d+)"
ASKED = r"next\([^\n]{0,80}parameters\(|\.dtype\b|\.device\b|get_parameter_(?:device|dtype)"


@log_pattern(MESSAGE, context=(ASKED, TRAINER))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise the question for the parameters in the replica's own traceback."""
    if (asked := beside(record, log, ASKED)) and not beside(record, log, TRAINER):
        yield _finding(record, match, asked)


@log_pattern(MESSAGE, context=(ASKED, TRAINER))
def cut_off_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave the cause open where the replica's traceback is missing."""
    if beside(record, log, ASKED) or beside(record, log, TRAINER):
        return
    ambiguity = Ambiguity(
        (
            "next(self.parameters()) in forward, or a property built on it",
            "next() of something that a replica got no share of (batch-smaller-than-gpus)",
        ),
        "grep -A 30 'Original Traceback' train.log",
    )
    yield _finding(record, match, (), ambiguity)


EMPTY = re.compile(
    r"\n[^\n]{0,60}torch[/\\]nn[/\\]modules[/\\]container\.py\", line \d+, in __getitem__\n"
    r"[^\n]{0,40}(?:idx = self\._get_abs_string_index\(idx\)|self\._parameters\[)"
)
"""The last frame within a container of parameters: one of modules reads ``_modules`` there."""


@log_pattern(r"(?:IndexError|KeyError): Caught (?:IndexError|KeyError) in replica (?P<replica>\d+) on device \d+")
def of_listed_parameters(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """See that the replica's own traceback ends in a list or dict of parameters."""
    found = EMPTY.search(record.text, match.end())
    if found is None or ("_get_abs" in found[0] and not LIST.search(record.text)):
        return
    kind = "ParameterDict" if "_parameters[" in found[0] and "KeyError: Caught" in match[0] else "ParameterList"
    yield Finding(
        f"forward reads an nn.{kind} in replica {match['replica']} of DataParallel, where it is empty",
        (record.proof(match, "parameters that are attributes of the module itself"),),
        Fix(
            "train with DDP, where every process has the real model; or register each parameter by its own name",
            diff="-self.bins = nn.ParameterList(bins)\n"
            '+for i, each in enumerate(bins):\n+    self.register_parameter(f"bin{i}", each)\n'
            "-self.bins[0]\n+self.bin0",
        ),
        record.place,
    )


LIST = re.compile(r"index (?:0|-1) is out of range\s*$")


def _finding(
    record: Record, match: re.Match[str], asked: tuple[Evidence, ...], ambiguity: Ambiguity | None = None
) -> Finding:
    return Finding(
        f"forward asks replica {match[1]} of DataParallel for its parameters, and a replica has none",
        (record.proof(match, "device and dtype taken from the input"), *asked),
        Fix(
            "take device and dtype from the input; better, train with DDP",
            diff="-device = next(self.parameters()).device\n+device = x.device",
        ),
        record.place,
        ambiguity=ambiguity,
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for next(self.parameters()) in the forward of a class of this file that DataParallel is given."""
    for call in script.calls("next"):
        function, owner = script.function(call), script.tree.class_of(call)
        asked = ast.unparse(call.args[0]) if call.args else ""
        if owner is None or getattr(function, "name", "") != "forward" or asked != "self.parameters()":
            continue
        for wrap in script.calls(DATA_PARALLEL):
            model = script.value(wrap.args[0]) if wrap.args else None
            if isinstance(model, ast.Call) and script.names_class(model.func) is owner and len(call.args) == 1:
                yield Finding(
                    f"{owner.name}.forward asks a replica for its parameters, and a replica of DataParallel has none",
                    (script.seen(call, "the device of an input"), script.seen(wrap)),
                    Fix("take device and dtype from an input, or from a buffer"),
                    script.place(call),
                )
