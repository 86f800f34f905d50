"""Recognises the folders of Megatron-LM by the names in them: a run's, and that of one iteration.

Each rank of tensor and pipeline parallelism has a folder of its own with its part of the model. Checkpoints of
torch.distributed.checkpoint, which Megatron-Core writes as well, lie in the folder of an iteration: read as such.

Source: Megatron-LM, megatron/training/checkpointing.py, ``get_checkpoint_name``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.contents import Note
from ddpdoctor.checkpoint.formats.distributed import METADATA

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.checkpoint.formats.deepspeed import Known

TRACKER = "latest_checkpointed_iteration.txt"
ITERATION = re.compile(r"^iter_(\d{7,})$|^(release)$")
RANK = re.compile(r"^mp_rank_(?P<tensor>\d+)(?:_(?P<pipeline>\d+))?(?:_(?P<expert>\d+))?$")
PARTS = ("model_optim_rng.pt", "model_rng.pt", "model_states.pt", "weights.pt")
MOST_TRACKED = 200


def megatron(path: Path) -> Known | None:
    """Return what Megatron-LM has saved in a folder, of a run or of an iteration; None where it has saved nothing."""
    found = _ranks(path)
    if found:
        return "Megatron-LM, an iteration", _notes(found, path.parent), ""
    runs = sorted(each for each in path.iterdir() if each.is_dir() and ITERATION.match(each.name))
    latest = _latest(path)
    if not runs or not ((path / TRACKER).is_file() or any(_ranks(each) for each in runs)):
        return None
    chosen = next((each for each in runs if each.name == latest), runs[-1])
    more = Note("holds", f"{len(runs)} iteration{'' if len(runs) == 1 else 's'}; the latest is {chosen.name}")
    if found := _ranks(chosen):
        return "Megatron-LM, a run", [more, *_notes(found, path)], ""
    if (chosen / METADATA).is_file():
        weights = Note("weights", command=("ddpdoctor", "inspect", str(chosen)))
        return "Megatron-LM, a run", [more, weights], ""
    return "Megatron-LM, a run", [more], f"{chosen.name}, the latest, holds no part of a model"


def _ranks(path: Path) -> list[Path]:
    """List the files of the ranks in the folder of an iteration."""
    folders = sorted(each for each in path.iterdir() if each.is_dir() and RANK.match(each.name))
    return [file for folder in folders for file in [next(filter(lambda f: f.is_file(), _parts(folder)), None)] if file]


def _parts(folder: Path) -> list[Path]:
    return [folder / name for name in PARTS]


def _latest(path: Path) -> str:
    """Return the name of the folder that the tracker names; empty where it does not."""
    tracker = path / TRACKER
    if not tracker.is_file() or tracker.stat().st_size > MOST_TRACKED:
        return ""
    text = tracker.read_text(encoding="utf-8", errors="replace").strip()
    return f"iter_{int(text):07d}" if text.isascii() and text.isdigit() else text


def _notes(files: list[Path], run: Path) -> list[Note]:
    """Return over how many ranks the model is split, where the parts are, and what puts them together."""
    names = [match for file in files if (match := RANK.match(file.parent.name))]
    tensor, pipeline = (len({match[kind] or "0" for match in names}) for kind in ("tensor", "pipeline"))
    split = f"tensor parallel size {tensor}, pipeline parallel size {pipeline}"
    notes = [
        Note("saved by", f"{len(files)} rank{'' if len(files) == 1 else 's'} of the model: {split}"),
        Note("weights", command=("ddpdoctor", "inspect", str(files[0]))),
    ]
    if len(files) > 1:
        options = ("--model-type", "GPT", "--loader", "mcore", "--saver", "mcore")
        sizes = ("--target-tensor-parallel-size", "1", "--target-pipeline-parallel-size", "1")
        where = ("--load-dir", str(run), "--save-dir", f"{run}.whole")
        notes.append(Note("whole", command=("python", "tools/checkpoint/convert.py", *options, *where, *sizes)))
    return notes
