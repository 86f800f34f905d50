"""A checkpoint beside a model whose keys or shapes are others: what is said of each difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, KeyDifference, ModelEntry, Place, Table, fitting_parts

from .._look import MOST_ROWS, few, load_lines, quoted

if TYPE_CHECKING:
    from ddpdoctor.check import CheckpointFile

PLACEHOLDERS = {(0,), (1,)}  # shapes of weights under DeepSpeed ZeRO-3


def part_of_another(checkpoint: CheckpointFile, found: KeyDifference, prefix: str, own_prefix: str) -> Finding:
    """Return the finding for a file of a model that holds this one, or of one that this one holds."""
    whose, which = ("the file's keys", prefix) if prefix else ("the model's keys", own_prefix)
    others = [each for each in fitting_parts(found) if each != prefix] if prefix else []
    if prefix:
        lines = [
            *load_lines(checkpoint, found.state_dict),
            f"start = {quoted(prefix)}" + (f"  # or {', '.join(map(quoted, others))}" if others else ""),
            "state = {key[len(start) :]: value for key, value in state.items() if key.startswith(start)}",
            "model.load_state_dict(state)",
        ]
    else:
        lines = [f"model.get_submodule({quoted(own_prefix[:-1])}).load_state_dict(state)"]
    return Finding(
        f"{whose} are the other's with {which} before them: one of the two is a part of a larger model",
        evidence_of(found, checkpoint.path),
        Fix("load the part that the two have in common", diff="\n".join(f"+ {line}" for line in lines)),
        place=Place(file=checkpoint.path, key=which),
        ambiguity=Ambiguity(
            tuple(
                f"the part {each} of the file is meant: it has all that the model wants" for each in (prefix, *others)
            ),
            "grep -rn 'ema\\|teacher\\|student' --include='*.py' .   # which one the training means to be used",
        )
        if others
        else None,
    )


def counts(found: KeyDifference) -> str:
    """Return how many keys differ, and how many agree."""
    counts = (
        (len(found.reshaped), "of another shape"),
        (len(found.missing), "missing in the file"),
        (len(found.unexpected), "unknown to the model"),
    )
    said = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"{said}, {found.matching - len(found.reshaped)} agree"


def evidence_of(found: KeyDifference, path: str) -> tuple[Evidence, ...]:
    """Return a shape, and the keys that one of the two lacks."""
    evidence = []
    if found.reshaped:
        key, seen, expected = found.reshaped[0]
        evidence.append(Evidence(f"{key} is {list(seen)}", f"{list(expected)} in the model", path))
    if found.missing:
        evidence.append(Evidence(f"the file lacks {few(found.missing)}", "as the model has it", path))
    if found.unexpected:
        evidence.append(Evidence(f"the file has {few(found.unexpected)}", "no such name in the model", path))
    return tuple(evidence)


def fix_of(found: KeyDifference) -> Fix:
    """Return what to do, by what differs."""
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


def first_key(found: KeyDifference) -> str:
    """Return the first key that differs."""
    return [*(key for key, _, _ in found.reshaped), *found.missing, *found.unexpected][0]


def table_of(found: KeyDifference, own: Sequence[ModelEntry]) -> Table:
    """Return the shapes of the keys that differ, in the file and in the model."""
    held = {found.file_strip(entry.key): str(list(entry.shape)) for entry in found.state_dict.entries}
    wanted = {found.model_strip(each.key): str(list(each.shape)) for each in own}
    odd = [*(key for key, _, _ in found.reshaped), *found.missing, *found.unexpected]
    rows = tuple((key, held.get(key, "-"), wanted.get(key, "-")) for key in odd[:MOST_ROWS])
    return Table(("key", "in the file", "in the model"), rows)
