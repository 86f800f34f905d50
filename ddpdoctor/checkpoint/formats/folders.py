"""Recognises the folders that frameworks save a training to, by the names in them.

Sources: accelerate/checkpointing.py; transformers/trainer.py; ray/train/v2/_internal/execution/storage.py;
Megatron-LM, megatron/training/checkpointing.py (``get_checkpoint_name``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.checkpoint.contents import CheckpointFile, Format, Note
from ddpdoctor.checkpoint.formats.deepspeed import Known, deepspeed, zero_of
from ddpdoctor.checkpoint.formats.distributed import METADATA
from ddpdoctor.checkpoint.formats.megatron import megatron

INDEX = ".index.json"  # of safetensors and of pickled shards
ACCELERATES = "random_states_N.pkl"  # for each process, by its number
TRAINERS = "rng_state_N.pth"
STATE = "trainer_state.json"
MOST_STATE = 1 << 26


def folder_of(path: Path) -> CheckpointFile | None:
    """Return what a folder is, that has neither the metadata of DCP nor one index; None if no framework made it."""
    for recognise in (deepspeed, megatron, _accelerate, _trainer, _ray):
        if known := recognise(path):
            size = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
            label, notes, damage = known
            return CheckpointFile(str(path), Format.FOLDER, size, label=label, notes=tuple(notes), damage=damage)
    return None


def _accelerate(path: Path) -> Known | None:
    ranks = _processes(path, ACCELERATES)
    if not ranks:
        return None
    count = ranks[-1] + 1
    notes = [Note("saved by", f"{count} process{'es' if count > 1 else ''}, accelerator.save_state")]
    notes += [*_without_draws(ranks, ACCELERATES), *_weights(path)]
    for folder in sorted(path.glob("pytorch_model_fsdp*")):
        if (folder / METADATA).is_file():
            notes.append(Note("whole", command=("accelerate", "merge-weights", str(folder), f"{path}.whole")))
    for folder in sorted(each for each in path.iterdir() if each.is_dir() and zero_of(each)):
        notes.append(Note("weights", command=("ddpdoctor", "inspect", str(folder))))
    return "Accelerate", notes, ""


def _trainer(path: Path) -> Known | None:
    if not (path / STATE).is_file():
        return None
    ranks = _processes(path, TRAINERS)
    count = f"{ranks[-1] + 1} processes, " if ranks else ""
    notes = [Note("saved by", f"{count}the Trainer, to be resumed from"), *_without_draws(ranks, TRAINERS)]
    return "transformers Trainer", [*notes, *_weights(path)], _cut(path / STATE)


def _processes(path: Path, name: str) -> list[int]:
    """List the processes that have left a file of this name, with their number in it."""
    form = re.compile(re.escape(name).replace("N", r"(\d+)") + "$")
    return sorted(int(match[1]) for each in path.iterdir() if (match := form.match(each.name)))


def _without_draws(ranks: list[int], name: str) -> Iterator[Note]:
    """Yield that processes before the last have left no state of their random generators: resumed, they draw anew."""
    missing = sorted({*range(max(ranks, default=-1) + 1)} - {*ranks})
    if missing:
        files = ", ".join(name.replace("N", str(each)) for each in missing[:4]) + (", ..." if len(missing) > 4 else "")  # noqa: PLR2004
        yield Note("missing", f"{files}: each host saves those of its own processes; resumed, they draw other numbers")


def _cut(path: Path) -> str:
    """Say that a file of JSON ends too early, or is none; empty where it is whole."""
    if path.stat().st_size > MOST_STATE:
        return ""
    try:
        json.loads(path.read_bytes())
    except RecursionError:
        return ""
    except ValueError as exc:
        return f"{path.name} is not whole, and no training resumes from it: {exc}"
    return ""


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
