"""The checkpoint is of another network than the model.

## What happens

Once the prefixes of wrappers are out of the way, keys are still missing or left over, or tensors of the same name
have other shapes. `load_state_dict` raises "size mismatch for fc.weight: copying a param with shape torch.Size([1000,
512]) from checkpoint, the shape in current model is torch.Size([10, 512])". With `strict=False` it passes over the
keys, and leaves those layers as they were initialised; it does not overlook shapes.

Usual causes: other arguments of the constructor (depth, width, number of classes, vocabulary), another version of the
code or of the library that defines the model, another file than meant. A prefix of your own before all keys, such as
`model.` in a file of Lightning, means that the file is of a module which holds the model. Shapes of [0] or [1]
throughout are the placeholders that `state_dict()` gives under DeepSpeed ZeRO-3.

## How to be sure

Read the table of the finding: a shape that differs in width shows the argument, a missing key shows the layer.
`ddpdoctor inspect last.pt --like other.pt` compares two files key by key.
`ddpdoctor repair last.pt --model train.py:build_model -o new.pt` finds the renaming that makes the keys equal, or
says why there is none.

## How to mend it

Build the model with the arguments of the training that wrote the file, and save them beside the weights from now on.
To keep a backbone and replace a head, delete the head's keys from the state dict, load with `strict=False`, and print
what it returns.

## Versions and sources

Holds for all versions of torch; seen with torch 2.13 CPU. `num_batches_tracked` exists since torch 0.4.1: where a
file lacks nothing else and has no `_metadata`, torch fills it up. Source: PyTorch documentation,
`Module.load_state_dict`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    KeyDifference,
    Log,
    ModelEntry,
    Place,
    Record,
    Severity,
    Table,
    closest_difference,
    is_flat,
    log_pattern,
    probe,
    shifted,
)

from ._look import MOST_ROWS, few, load_lines, named, quoted, state_dicts
from ._reason import OTHER_NETWORK, Reason, are_placeholders, on_refusal
from ._refusal import HEAD, PARTS, SHAPE, Shape, refusal

if TYPE_CHECKING:
    from ddpdoctor.check import CheckpointFile, ModelExam

AILMENT = Ailment("DDP806", Severity.ERROR)
PLACEHOLDERS = {(0,), (1,)}


@probe
def beside_the_model(checkpoint: CheckpointFile, model: ModelExam) -> Iterator[Finding]:
    """Compare keys and shapes, prefixes of wrappers aside."""
    state_dicts(checkpoint)
    found = closest_difference(checkpoint, model.state)
    if found is None or not (found.missing or found.unexpected or found.reshaped):
        return
    if any(map(is_flat, found.state_dict.keys)) or _filled_up(found):
        return  # the check of sharded weights tells of the former; torch itself mends the latter
    prefix, own_prefix = shifted(found)
    if prefix or own_prefix:
        yield _part(checkpoint, found, prefix, own_prefix)
        return
    yield Finding(
        f"{named(found.state_dict)} does not fit the model: {_counts(found)}",
        _evidence(found, checkpoint.path),
        _fix(found),
        place=Place(file=checkpoint.path, key=_first(found)),
        table=_table(found, model.state),
    )


def _filled_up(found: KeyDifference) -> bool:
    return found.skewed and not found.unexpected and found.state_dict.metadata is None


def _part(checkpoint: CheckpointFile, found: KeyDifference, prefix: str, own_prefix: str) -> Finding:
    """Return the finding for a file of a model that holds this one, or of one that this one holds."""
    whose, which = ("the file's keys", prefix) if prefix else ("the model's keys", own_prefix)
    if prefix:
        lines = [
            *load_lines(checkpoint, found.state_dict),
            f"start = {quoted(prefix)}",
            "state = {key[len(start) :]: value for key, value in state.items() if key.startswith(start)}",
            "model.load_state_dict(state)",
        ]
    else:
        lines = [f"model.get_submodule({quoted(own_prefix[:-1])}).load_state_dict(state)"]
    return Finding(
        f"{whose} are the other's with {which} before them: one of the two is a part of a larger model",
        _evidence(found, checkpoint.path),
        Fix("load the part that the two have in common", diff="\n".join(f"+ {line}" for line in lines)),
        place=Place(file=checkpoint.path, key=which),
    )


def _counts(found: KeyDifference) -> str:
    counts = (
        (len(found.reshaped), "of another shape"),
        (len(found.missing), "missing in the file"),
        (len(found.unexpected), "unknown to the model"),
    )
    said = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"{said}, {found.matching - len(found.reshaped)} agree"


def _evidence(found: KeyDifference, path: str) -> tuple[Evidence, ...]:
    evidence = []
    if found.reshaped:
        key, seen, expected = found.reshaped[0]
        evidence.append(Evidence(f"{key} is {list(seen)}", f"{list(expected)} in the model", path))
    if found.missing:
        evidence.append(Evidence(f"the file lacks {few(found.missing)}", "as the model has it", path))
    if found.unexpected:
        evidence.append(Evidence(f"the file has {few(found.unexpected)}", "no such name in the model", path))
    return tuple(evidence)


def _fix(found: KeyDifference) -> Fix:
    shapes = {seen for _, seen, _ in found.reshaped}
    if shapes and shapes <= PLACEHOLDERS and len(found.reshaped) == found.matching > 1:
        return Fix(
            "gather the weights of DeepSpeed ZeRO-3 into one file: these are its placeholders",
            command="python3 zero_to_fp32.py . pytorch_model.bin",
        )
    if found.skewed:
        return Fix(
            "load without the counters of BatchNorm, which this file and this model disagree about",
            diff="- model.load_state_dict(state)\n+ print(model.load_state_dict(state, strict=False))",
        )
    if found.same_network and len(found.reshaped) <= min(MOST_ROWS, found.matching // 2) and found.reshaped:
        names = ", ".join(f'"{key}"' for key, _, _ in found.reshaped)
        return Fix(
            "give the model the arguments that the file was trained with, or drop these layers to train them anew",
            diff=f"+ for key in ({names},):\n+     del state[key]\n"
            "- model.load_state_dict(state)\n+ print(model.load_state_dict(state, strict=False))",
        )
    return Fix(
        "build the model with the arguments and the code of the training that wrote the file, or name that model"
    )


def _first(found: KeyDifference) -> str:
    return [*(key for key, _, _ in found.reshaped), *found.missing, *found.unexpected][0]


def _table(found: KeyDifference, own: Sequence[ModelEntry]) -> Table:
    held = {found.file_strip(entry.key): str(list(entry.shape)) for entry in found.state_dict.entries}
    wanted = {found.model_strip(each.key): str(list(each.shape)) for each in own}
    odd = [*(key for key, _, _ in found.reshaped), *found.missing, *found.unexpected]
    rows = tuple((key, held.get(key, "-"), wanted.get(key, "-")) for key in odd[:MOST_ROWS])
    return Table(("key", "in the file", "in the model"), rows)


@on_refusal(Reason.OTHER)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report what is left when no prefix makes the keys equal."""
    refused = refusal(record, match, log)
    counts = [
        f"{len(what)} {word}"
        for what, word in (
            (refused.missing, "keys are missing"),
            (refused.unexpected, "are unexpected"),
            (refused.shapes, "tensors have other shapes"),
        )
        if what
    ]
    yield Finding(
        f"the checkpoint is of another network than {refused.model}: {', '.join(counts)}, and no prefix explains it",
        refused.evidence,
        ARGUMENTS,
        record.place,
    )


@on_refusal(Reason.ONLY_MISSING)
def only_missing_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave it open where keys are missing and the log does not show what stands in their place."""
    refused = refusal(record, match, log)
    yield Finding(
        f"{len(refused.missing)} keys of {refused.model} are not in the checkpoint",
        (Evidence(few(refused.missing), "these keys in the file", "load_state_dict"), *refused.evidence),
        ARGUMENTS,
        record.place,
        ambiguity=Ambiguity(
            (
                OTHER_NETWORK,
                "the keys carry a prefix: _orig_mod. (orig-mod-prefix), module. (module-prefix)",
                "the file is a whole training state (nested-state-dict)",
                "the file has the shards of one rank of FSDP (fsdp-checkpoint-into-plain-model)",
            ),
            f"ddpdoctor inspect {refused.path} --keys",
        ),
    )


@log_pattern(SHAPE, context=PARTS)
def by_shapes_alone(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report shapes where the head of the error is missing from the log, once."""
    shapes = tuple(Shape(*found.groups()) for _, found in log.find(SHAPE))
    first = log.first(SHAPE)
    if log.first(HEAD) or are_placeholders(shapes) or first is None or first[0] is not record:
        return
    yield Finding(
        f"the checkpoint is of another network: {len(shapes)} tensors have other shapes",
        (record.proof(match, f"[{match[3]}]"),),
        ARGUMENTS,
        record.place,
    )


THERE = (
    'python -c "import torch.distributed.checkpoint as d; '
    "print(*d.FileSystemReader('FOLDER').read_metadata().state_dict_metadata, sep='\\n')\"   # the keys that are there"
)


@log_pattern(
    r"ValueError: Size mismatch between saved torch\.Size\((?P<saved>\[[\d, ]*\])\) and current: "
    r"torch\.Size\((?P<now>\[[\d, ]*\])\) for (?P<key>[\w.]+)"
)
def by_a_shape_in_a_sharded_checkpoint(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read which tensor torch.distributed.checkpoint found to be of another shape."""
    yield Finding(
        f"the checkpoint is of another network: {match['key']} is {match['saved']} in it, {match['now']} in the model",
        (record.proof(match, f"{match['key']} of {match['saved']}"),),
        ARGUMENTS,
        record.place,
    )


@log_pattern(r"(?:^|\n)RuntimeError: Missing key in checkpoint state_dict: (?P<key>[^\n]+?)\.?(?:\n|$)")
def in_a_sharded_checkpoint(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """torch.distributed.checkpoint names the first key that it does not find."""
    yield Finding(
        f"the sharded checkpoint has no {match['key']}",
        (record.proof(match, "a key for each entry of the state dict that is loaded"),),
        Fix(
            "load into what was saved: the same model, wrapped in the same order, and the same optimizer",
            command=THERE,
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                OTHER_NETWORK,
                "the keys carry a prefix: the model is wrapped, compiled or nested otherwise than when it was saved",
                "the entry was not saved (an optimizer before its first step, a new module)",
            ),
            THERE,
        ),
    )


ARGUMENTS = Fix(
    "build the model with the arguments of the training that wrote the file; see key by key what differs",
    command="ddpdoctor inspect last.pt --keys\nddpdoctor check --checkpoint last.pt --model train.py:build_model",
)
