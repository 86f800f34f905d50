"""Recognises the folders of DeepSpeed by the names in them, and what of a checkpoint is not there.

Opened are ``latest`` and the pickle of one rank's part of the optimizer, which says how many parts there are.

Sources: deepspeed/runtime/engine.py (``_get_zero_ckpt_name``, ``_get_ckpt_name``), deepspeed/utils/zero_to_fp32.py,
deepspeed/checkpoint/ds_to_universal.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ddpdoctor.checkpoint.contents import CheckpointFile, Note
from ddpdoctor.checkpoint.formats import archive, archive_record
from ddpdoctor.checkpoint.pickles.opcodes import interpret
from ddpdoctor.checkpoint.pickles.values import UnreadableError, pairs_of
from ddpdoctor.facets import BadTarget

SCRIPT = "zero_to_fp32.py"
LIGHTNING = "checkpoint"  # the tag under which Lightning's strategy saves
UNIVERSAL = "zero"  # the folder of a tag in which a universal checkpoint has a folder of each parameter
OPTIMIZER = re.compile(r"^(?:[a-z0-9]+_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt$")
PART = re.compile(r"^zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt$")
WHOLE = re.compile(r"^mp_rank_(\d+)_model_states\.pt$")
MOST_TAG = 200
NAMED_BESIDE = frozenset({"buffer_names", "param_shapes", "frozen_param_shapes"})
Known = tuple[str, list[Note], str]
"""Whose folder it is, what is told of it, and what is broken."""


class Zero(NamedTuple):
    """A checkpoint of DeepSpeed: the folder of a tag and the one above it, which ``zero_to_fp32.py`` is given.

    ``ranks`` are the data-parallel ranks that have left their part of the optimizer; ``split`` says that each has a
    part of the weights as well: ZeRO stage 3. ``models`` are the files of whole weights.
    """

    root: Path
    tag: str
    ranks: tuple[int, ...]
    split: bool
    models: tuple[str, ...]

    @property
    def whole(self) -> Note:
        """The command that puts the weights together."""
        script = str(self.root / SCRIPT)
        tool = (script,) if Path(script).is_file() else ("-m", "deepspeed.utils.zero_to_fp32")
        if self.tag == LIGHTNING:
            code = "import sys; from lightning.pytorch.utilities import deepspeed; "
            code += "deepspeed.convert_zero_checkpoint_to_fp32_state_dict(*sys.argv[1:])"
            return Note("whole", command=("python", "-c", code, str(self.root), f"{self.root}.whole"))
        return Note("whole", command=("python", *tool, str(self.root), f"{self.root}.whole", "--tag", self.tag))


def part_of(path: Path) -> tuple[Note, ...]:
    """Return what is to be known of a file that is one rank's part of a checkpoint of DeepSpeed."""
    if not (PART.match(path.name) or OPTIMIZER.match(path.name)):
        return ()
    zero = zero_of(path.parent)
    what = "optimizer's state" if OPTIMIZER.match(path.name) else "weights: ZeRO stage 3 leaves empty tensors here"
    return (Note("part", f"one rank's part of the {what}"), *((zero.whole,) if zero and zero.ranks else ()))


def refuse_named_apart(file: CheckpointFile) -> None:
    """Refuse a file of whole weights: lists beside them name buffers and parameters, and would keep the old names.

    Raises:
        BadTarget: it is one.
    """
    if beside := NAMED_BESIDE.intersection(item.key for item in file.items):
        raise BadTarget(
            f"{file.path} is a file of DeepSpeed, whose {' and '.join(sorted(beside))} name the same tensors: "
            f"{SCRIPT} would not find them any more. Write a copy with -o, for a model outside of DeepSpeed"
        )


def zero_of(path: Path) -> Zero | None:
    """Return the checkpoint of DeepSpeed in a folder, or that the folder is the tag of; the latest of several."""
    if any(path.glob("*_model_states.pt")):
        return _tagged(path.parent, path.name)
    tags = [each.parent.name for each in path.glob("*/*_model_states.pt")]
    if not tags:
        return None
    latest = _latest(path)
    return _tagged(path, latest if latest in tags else max(tags, key=lambda tag: ((path / tag).stat().st_mtime, tag)))


def _tagged(root: Path, tag: str) -> Zero:
    names = sorted(each.name for each in (root / tag).iterdir())
    ranks = {int(match[1]) for name in names if (match := OPTIMIZER.match(name))}
    split = any(map(PART.match, names))
    return Zero(root, tag, tuple(sorted(ranks)), split, tuple(name for name in names if WHOLE.match(name)))


def _latest(root: Path) -> str:
    latest = root / "latest"
    if not latest.is_file() or latest.stat().st_size > MOST_TAG:
        return ""
    return latest.read_text(encoding="utf-8", errors="replace").strip()


def deepspeed(path: Path) -> Known | None:
    """Return what DeepSpeed has saved in a folder; None where it has saved nothing."""
    zero = zero_of(path)
    if zero is None:
        return None
    folder = zero.root / zero.tag
    if (folder / UNIVERSAL).is_dir():
        settings = 'loaded with "checkpoint": {"load_universal": true} in the configuration'
        return "DeepSpeed", [Note("saved by", f"ds_to_universal, for any number of ranks: {settings}")], ""
    parts = _parts(folder)
    stage = "ZeRO stage 3" if zero.split else "ZeRO stage 1 or 2" if zero.ranks else "no ZeRO"
    saved = f"{max(parts, len(zero.ranks))} data-parallel ranks, " if zero.ranks else ""
    notes = [Note("saved by", f"{saved}{stage}; tag {zero.tag}")]
    notes += [Note("weights", command=("ddpdoctor", "inspect", str(folder / name))) for name in zero.models[:1]]
    if zero.ranks:
        notes.append(zero.whole)
        if zero.tag != LIGHTNING:
            given = ("--input_folder", str(folder), "--output_folder", f"{folder}_universal")
            notes.append(Note("any ranks", command=("python", "-m", "deepspeed.checkpoint.ds_to_universal", *given)))
    return "DeepSpeed", notes, _lost(path, zero, parts)


def _lost(path: Path, zero: Zero, parts: int) -> str:
    latest = _latest(path)
    if latest and path == zero.root and not (path / latest).is_dir():
        return f"latest names {latest}, which is not there"
    missing = sorted({*range(max(parts, max(zero.ranks, default=-1) + 1))} - {*zero.ranks})
    if missing:
        ranks = "ranks" if len(missing) > 1 else "rank"
        verb = "are" if len(missing) > 1 else "is"
        told = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")  # noqa: PLR2004
        return f"the optimizer's part of {ranks} {told} {verb} not there: each host saves those of its own ranks"
    return ""


def _parts(folder: Path) -> int:
    """Return into how many parts ZeRO had cut the optimizer's state, as one of them says; 0 where none can be read."""
    name = next((each.name for each in sorted(folder.iterdir()) if OPTIMIZER.match(each.name)), "")
    if not name:
        return 0
    try:
        state = _value(_pickled(folder / name), "optimizer_state_dict")
    except (UnreadableError, OSError, KeyError, StopIteration, ValueError):
        return 0
    count = _value(state, "partition_count")
    counts = count if isinstance(count, list) else [count]  # of each group of parameters
    return max((each for each in counts if isinstance(each, int)), default=0)


def _pickled(path: Path) -> Any:
    """Return the value that the pickle of a file of torch.save describes; it is not run."""
    with path.open("rb") as file:
        records = archive.directory(file, path.stat().st_size)
        front = next(records.names()).partition("/")[0]
        return interpret(archive_record.read(file, records.record(f"{front}/data.pkl")), placed=False)[0]


def _value(mapping: Any, key: str) -> Any:
    return next((value for name, value in pairs_of(mapping) or () if name == key), None)
