"""How a wrapper's prefix in the keys is reported: assumed from the file alone, or proven by the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    FEW_PARTS,
    Evidence,
    Facet,
    Finding,
    Fix,
    KeyDifference,
    Log,
    Place,
    Record,
    Severity,
    Strip,
    assumed_strip,
    closest_difference,
    is_averaged,
    is_flat,
    outermost,
    probe,
    wrapped_keys,
    wrapped_parts,
)

from ..._look import few, named, repair_command, state_dicts
from ..._reason import Reason, on_refusal, reason
from ..._refusal import refusal

if TYPE_CHECKING:
    from ddpdoctor.check import CheckpointFile, ModelExam, StateDict

    from ..._refusal import Refusal


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A wrapper: the names of its child, what it is called, and the line that saves without it instead of with it.

    ``reason`` is what load_state_dict's complaint comes down to where one side has the wrapper.
    """

    segments: tuple[str, ...]
    maker: str
    saved: str
    better: str
    reason: Reason
    assumption: str = ""

    @property
    def diff(self) -> str:
        """Show the change where the file is saved."""
        return f"- {self.saved}\n+ {self.better}"


def facets(wrapper: Wrapper) -> tuple[Facet, Facet, Facet]:
    """Return what recognises the wrapper: in a file by itself, beside the model, in a log."""

    @probe
    def alone(checkpoint: CheckpointFile, model_given: bool) -> Iterator[Finding]:  # noqa: FBT001
        if not model_given:
            yield from _from_file(checkpoint, wrapper)

    @probe
    def beside_the_model(checkpoint: CheckpointFile, model: ModelExam) -> Iterator[Finding]:
        yield from _from_model(checkpoint, model, wrapper)

    @on_refusal(wrapper.reason)
    def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
        yield from _from_log(record, match, log, wrapper)

    return alone, beside_the_model, in_logs


def _from_file(checkpoint: CheckpointFile, wrapper: Wrapper) -> Iterator[Finding]:
    """Note each state dict whose keys carry the wrapper's prefix, when there is no model to compare with."""
    for state_dict in state_dicts(checkpoint):
        keys = state_dict.keys
        strip = assumed_strip(keys)
        if is_averaged(keys) or any(map(is_flat, keys)) or outermost(strip, keys) not in wrapper.segments:
            continue
        changed = [key for key in keys if strip(key) != key]
        yield Finding(
            f"{len(changed)} of {len(keys)} keys of {named(state_dict)} carry {strip}, "
            f"which {wrapper.maker} adds{wrapper.assumption}",
            (Evidence(few(changed), few(map(strip, changed)), checkpoint.path),),
            _mend(checkpoint, state_dict, strip, wrapper),
            place=Place(file=checkpoint.path, key=changed[0]),
            severity=Severity.NOTE,
        )


def _from_model(checkpoint: CheckpointFile, model: ModelExam, wrapper: Wrapper) -> Iterator[Finding]:
    """Report the prefix when the model's own keys prove it to be one."""
    state_dicts(checkpoint)
    found = closest_difference(checkpoint, model.state)
    if not found or not found.same_network or is_averaged(found.state_dict.keys):
        return
    keys = found.state_dict.keys
    own = tuple(parameter.key for parameter in model.state)
    if outermost(found.file_strip, keys) in wrapper.segments:
        options = ("--model", str(model.target)) if found.complete else _spelled_out(found.file_strip, keys)
        yield _too_many(checkpoint, found, wrapper, options)
    elif not found.file_strip.segments and outermost(found.model_strip, own) in wrapper.segments:
        yield _too_few(checkpoint, found, own, wrapper)


def _spelled_out(strip: Strip, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options of the repair, where there is no model that has all keys of the file."""
    if assumed_strip(keys) == strip:
        return ()
    parts = wrapped_parts(keys)
    if strip.inside and 0 < len(parts) <= FEW_PARTS and not strip.front:
        return tuple(f"--map={old}={new}" for old, new in parts.items())
    if strip.inside:
        return ("--model", "train.py:build_model")
    return tuple(option for segment in strip.front for option in ("--strip", f"{segment}."))


def _too_many(checkpoint: CheckpointFile, found: KeyDifference, wrapper: Wrapper, options: tuple[str, ...]) -> Finding:
    keys = found.state_dict.keys
    changed = [key for key in keys if found.file_strip(key) != key]
    evidence = [Evidence(few(changed), few(map(found.file_strip, changed)), checkpoint.path)]
    evidence += [Evidence(f"without it, {found.matching} keys are the model's", "", "--model")]
    if found.file_strip.front and len(changed) < len(keys):
        plain = [key for key in keys if found.file_strip(key) == key]
        evidence.append(Evidence(f"{len(plain)} keys have none: {few(plain)}", "all, or none", checkpoint.path))
    return Finding(
        f"{wrapped_keys(found)} of {len(keys)} keys of {named(found.state_dict)} carry {found.file_strip}, "
        f"which {wrapper.maker} adds; the model's own keys do not, and load_state_dict raises",
        tuple(evidence),
        _mend(checkpoint, found.state_dict, found.file_strip, wrapper, *options),
        place=Place(file=checkpoint.path, key=changed[0]),
    )


def _too_few(checkpoint: CheckpointFile, found: KeyDifference, own: tuple[str, ...], wrapper: Wrapper) -> Finding:
    changed = [key for key in own if found.model_strip(key) != key]
    child = "".join(f".{segment}" for segment in found.model_strip.front)
    return Finding(
        f"{len(changed)} of {len(own)} keys of the model carry {found.model_strip}, "
        f"which {wrapper.maker} adds; the file's keys do not, and load_state_dict raises",
        (Evidence(few(changed), few(map(found.model_strip, changed)), "--model"),),
        Fix(
            "load into the bare model, before it is wrapped",
            diff=f"- model.load_state_dict(state)\n+ model{child}.load_state_dict(state)",
        ),
        place=Place(file=checkpoint.path, key=changed[0]),
    )


def _mend(checkpoint: CheckpointFile, state_dict: StateDict, strip: Strip, wrapper: Wrapper, *options: str) -> Fix:
    if len({strip(key) for key in state_dict.keys}) < len(state_dict.keys):
        return Fix(
            "save again: the file has two tensors for one bare key, and renaming would lose one", diff=wrapper.diff
        )
    command, new = repair_command(checkpoint.path, *options)
    return Fix(f"write {new} with the bare keys, and save the bare model from now on", command, wrapper.diff)


def _from_log(record: Record, match: re.Match[str], log: Log, wrapper: Wrapper) -> Iterator[Finding]:
    """Report the prefix when taking it out makes what load_state_dict found missing and unexpected the same keys."""
    refused = refusal(record, match, log)
    _, in_file, in_model = reason(refused)
    strip, keys = (in_file, refused.unexpected) if in_file.segments else (in_model, refused.missing)
    changed = [key for key in keys if strip(key) != key]
    whose = "the checkpoint" if in_file.segments else "the model"
    yield Finding(
        f"{len(changed)} keys of {whose} carry {strip}, which {wrapper.maker} adds"
        + (", and strict=False loaded none of them" if refused.silent else ""),
        (Evidence(few(changed), few(map(strip, changed)), f"without {strip} on the other side"), *refused.evidence),
        _mend_named(refused, in_file, wrapper) if in_file.segments else _load_bare(in_model, refused.missing),
        record.place,
    )


def _mend_named(refused: Refusal, strip: Strip, wrapper: Wrapper) -> Fix:
    command, new = repair_command(refused.path, *_spelled_out(strip, refused.unexpected))
    if parts := _wrapped_alone(strip, refused.unexpected):
        return Fix(f"write {new} without {strip}: the wrapper is around {parts}, a part of what is saved", command)
    return Fix(f"write {new} without {strip}, and save the bare model from now on", command, wrapper.diff)


def _load_bare(strip: Strip, keys: tuple[str, ...]) -> Fix:
    if parts := _wrapped_alone(strip, keys):
        return Fix(f"load into the model before {parts} of it is wrapped: move load_state_dict up")
    child = "".join(f".{segment}" for segment in strip.front) or ".module"
    return Fix(
        "load into the bare model, before it is wrapped",
        diff=f"- model.load_state_dict(state)\n+ model{child}.load_state_dict(state)",
    )


def _wrapped_alone(strip: Strip, keys: tuple[str, ...]) -> str:
    """Name the parts of the model that have a wrapper around them, where the model has none."""
    return "" if strip.front else " and ".join(list(wrapped_parts(keys).values())[:FEW_PARTS])
