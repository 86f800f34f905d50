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
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    KeyDifference,
    Log,
    Place,
    Record,
    Severity,
    closest_difference,
    is_flat,
    log_pattern,
    probe,
    shifted,
)

from .._look import few, named, state_dicts
from .._reason import OPTION, OTHER_NETWORK, Reason, are_placeholders, on_refusal
from .._refusal import CONTEXT, HEAD, SHAPE, Shape, refusal
from ._arguments import ARGUMENTS, arguments_of, vocabulary
from ._flat_shards import flat, of_flat_shards
from ._missing import BY_ACCELERATE, COMPILED, COMPILES, GATHERED, PARTIAL, THERE, special, where
from ._unlike import counts, evidence_of, first_key, fix_of, part_of_another, table_of

if TYPE_CHECKING:
    from ddpdoctor.check import CheckpointFile, ModelExam

AILMENT = Ailment("DDP806", Severity.ERROR)


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
        yield part_of_another(checkpoint, found, prefix, own_prefix)
        return
    yield Finding(
        f"{named(found.state_dict)} does not fit the model: {counts(found)}",
        evidence_of(found, checkpoint.path),
        fix_of(found),
        place=Place(file=checkpoint.path, key=first_key(found)),
        table=table_of(found, model.state),
    )


def _filled_up(found: KeyDifference) -> bool:
    return found.skewed and not found.unexpected and found.state_dict.metadata is None


@on_refusal(Reason.OTHER)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report what is left when no prefix makes the keys equal."""
    refused = refusal(record, match, log)
    said = [
        f"{len(what)} {several if len(what) > 1 else one}"
        for what, one, several in (
            (refused.missing, "key is missing", "keys are missing"),
            (refused.unexpected, "is unexpected", "are unexpected"),
            (refused.shapes, "tensor has another shape", "tensors have other shapes"),
        )
        if what
    ]
    yield Finding(
        f"the checkpoint is of another network than {refused.model}: {', '.join(said)}, and no prefix explains it",
        refused.evidence,
        vocabulary(refused.shapes) or arguments_of(record, refused.path),
        record.place,
    )


@on_refusal(Reason.ONLY_MISSING)
def only_missing_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave it open where keys are missing and the log does not show what stands in their place."""
    refused = refusal(record, match, log)
    yield Finding(
        f"{len(refused.missing)} keys of {refused.model} are not in the checkpoint",
        (Evidence(few(refused.missing), "these keys in the file", "load_state_dict"), *refused.evidence),
        arguments_of(record, refused.path),
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


@log_pattern(SHAPE, context=CONTEXT)
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


@log_pattern(
    r"ValueError: Size mismatch between saved torch\.Size\((?P<saved>\[[\d, ]*\])\) and current: "
    r"torch\.Size\((?P<now>\[[\d, ]*\])\) for (?P<key>[\w.]+)"
)
def by_a_shape_in_a_sharded_checkpoint(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read which tensor torch.distributed.checkpoint found to be of another shape, or of one dimension only."""
    if (piece := flat(match["saved"], match["now"])) is not None:
        yield of_flat_shards(record, match, piece)
        return
    yield Finding(
        f"the checkpoint is of another network: {match['key']} is {match['saved']} in it, {match['now']} in the model",
        (record.proof(match, f"{match['key']} of {match['saved']}"),),
        ARGUMENTS,
        record.place,
    )


@log_pattern(
    r"Global shape mismatch for loaded \((?P<saved>(?:torch\.Size\()?[(\[][\d, ]+[)\]]\)?)\) and expected "
    r"\((?P<now>\([\d, ]+\))\) tensor for key (?P<key>[\w.]+)"
)
def by_a_shape_in_megatron(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read which tensor Megatron's distributed checkpoint found to be of another shape."""
    yield Finding(
        f"the checkpoint is of another network: {match['key']} is {match['saved']} in it, {match['now']} in the model",
        (record.proof(match, f"{match['key']} of {match['saved']}"),),
        Fix(
            "give the model's options as at saving, or let Megatron take them from the checkpoint",
            command="... --use-checkpoint-args",
        ),
        record.place,
    )


@log_pattern(
    r"(?:^|\n)RuntimeError: Missing key in checkpoint state_dict: (?P<key>[^\n]+?)\.?(?:\n|$)"
    r"|metadata\.state_dict_metadata\[fqn\]\n[^\0]*?KeyError: '(?P<older>[^'\n]+)'",
    context=(COMPILES, BY_ACCELERATE, GATHERED),
)
def in_a_sharded_checkpoint(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """torch.distributed.checkpoint names the first key that it does not find."""
    if OPTION.search(match["key"] or match["older"]):
        return  # checkpoint-torch-version-skew
    key = match["key"] or match["older"]
    compiled = log.first(COMPILES)
    if (known := special(key, by_accelerate=log.first(BY_ACCELERATE) is not None)) is not None:
        causes, fix = known
        yield Finding(
            f"the sharded checkpoint has no {key}",
            (record.proof(match, "a key for each entry of the state dict that is loaded"),),
            fix,
            where(record, log),
            ambiguity=Ambiguity(causes, THERE),
        )
        return
    yield Finding(
        f"the sharded checkpoint has no {key}",
        (
            record.proof(match, "a key for each entry of the state dict that is loaded"),
            *((compiled[0].proof(compiled[1]),) if compiled else ()),
        ),
        Fix(
            "load into what was saved: the same model, wrapped in the same order, and the same optimizer"
            + ("" if compiled else "; where the model is to have more, let the rest stay as it is"),
            command=THERE,
            diff="" if compiled else PARTIAL,  # with all keys under other names it would load nothing
        ),
        where(record, log),
        ambiguity=Ambiguity(
            (
                *((COMPILED,) if compiled else ()),
                OTHER_NETWORK,
                "the keys carry a prefix: the model is wrapped, compiled or nested otherwise than when it was saved",
                "the entry was not saved (an optimizer before its first step, a new module)",
            ),
            THERE,
        ),
    )
