"""Recognises the folders that frameworks save a training to, by the names in them: no file is opened but ``latest``.

Sources: deepspeed/runtime/engine.py (``_get_zero_ckpt_name``, ``_get_ckpt_name``), deepspeed/utils/zero_to_fp32.py;
accelerate/checkpointing.py; transformers/trainer.py; ray/train/v2/_internal/execution/storage.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ddpdoctor.checkpoint.contents import CheckpointFile, Format, Note

INDEX = ".index.json"  # of safetensors and of pickled shards
METADATA = ".metadata"
SCRIPT = "zero_to_fp32.py"
LIGHTNING = "checkpoint"  # the tag under which Lightning's strategy saves
OPTIMIZER = re.compile(r"^(?:[a-z0-9]+_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt$")
PART = re.compile(r"^zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt$")
WHOLE = re.compile(r"^mp_rank_(\d+)_model_states\.pt$")
RANDOM = re.compile(r"^random_states_(\d+)\.pkl$")
MOST_TAG = 200


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


def folder_of(path: Path) -> CheckpointFile | None:
    """Return what a folder is, that has neither the metadata of DCP nor one index; None if no framework made it."""
    for recognise in (_deepspeed, _accelerate, _trainer, _ray):
        if known := recognise(path):
            size = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
            label, notes, damage = known
            return CheckpointFile(str(path), Format.FOLDER, size, label=label, notes=tuple(notes), damage=damage)
    return None


def part_of(path: Path) -> tuple[Note, ...]:
    """Return what is to be known of a file that is one rank's part of a checkpoint of DeepSpeed."""
    if not (PART.match(path.name) or OPTIMIZER.match(path.name)):
        return ()
    zero = zero_of(path.parent)
    what = "optimizer's state" if OPTIMIZER.match(path.name) else "weights: ZeRO stage 3 leaves empty tensors here"
    return (Note("part", f"one rank's part of the {what}"), *((zero.whole,) if zero and zero.ranks else ()))


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


Known = tuple[str, list[Note], str]


def _deepspeed(path: Path) -> Known | None:
    zero = zero_of(path)
    if zero is None:
        return None
    folder = zero.root / zero.tag
    stage = "ZeRO stage 3" if zero.split else "ZeRO stage 1 or 2" if zero.ranks else "no ZeRO"
    saved = f"{len(zero.ranks)} data-parallel ranks, " if zero.ranks else ""
    notes = [Note("saved by", f"{saved}{stage}; tag {zero.tag}")]
    notes += [Note("weights", command=("ddpdoctor", "inspect", str(folder / name))) for name in zero.models[:1]]
    if zero.ranks:
        notes.append(zero.whole)
        if zero.tag != LIGHTNING:
            given = ("--input_folder", str(folder), "--output_folder", f"{folder}_universal")
            notes.append(Note("any ranks", command=("python", "-m", "deepspeed.checkpoint.ds_to_universal", *given)))
    return "DeepSpeed", notes, _lost(path, zero)


def _lost(path: Path, zero: Zero) -> str:
    latest = _latest(path)
    if latest and path == zero.root and not (path / latest).is_dir():
        return f"latest names {latest}, which is not there"
    missing = sorted({*range(max(zero.ranks, default=-1) + 1)} - {*zero.ranks})
    if missing:
        told = ", ".join(map(str, missing[:8]))
        return f"the optimizer's part of rank {told} is not there: each host saves those of its own ranks"
    return ""


def _accelerate(path: Path) -> Known | None:
    ranks = {int(match[1]) for each in path.iterdir() if (match := RANDOM.match(each.name))}
    if not ranks:
        return None
    notes = [Note("saved by", f"{len(ranks)} process{'es' if len(ranks) > 1 else ''}, accelerator.save_state")]
    notes += _weights(path)
    for folder in sorted(path.glob("pytorch_model_fsdp*")):
        if (folder / METADATA).is_file():
            notes.append(Note("whole", command=("accelerate", "merge-weights", str(folder), f"{path}.whole")))
    for folder in sorted(each for each in path.iterdir() if each.is_dir() and zero_of(each)):
        notes.append(Note("weights", command=("ddpdoctor", "inspect", str(folder))))
    return "Accelerate", notes, ""


def _trainer(path: Path) -> Known | None:
    if not (path / "trainer_state.json").is_file():
        return None
    return "transformers Trainer", [Note("saved by", "the Trainer, to be resumed from"), *_weights(path)], ""


def _weights(path: Path) -> Iterator[Note]:
    for name in ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin"):
        if (path / name).is_file():
            yield Note("weights", command=("ddpdoctor", "inspect", str(path / name)))
    for index in sorted(path.glob(f"*{INDEX}")):
        yield Note("weights", command=("ddpdoctor", "inspect", str(index)))


def _ray(path: Path) -> Known | None:
    if not (path / "checkpoint_manager_snapshot.json").is_file() and not (path / ".validate_storage_marker").is_file():
        return None
    found = sorted(each for each in path.iterdir() if each.is_dir() and each.name.startswith("checkpoint_"))
    notes = [Note("holds", f"{len(found)} checkpoint{'' if len(found) == 1 else 's'}, in folders of their own")]
    notes += [Note("weights", command=("ddpdoctor", "inspect", str(found[-1])))] if found else []
    return "Ray Train, a run", notes, ""
