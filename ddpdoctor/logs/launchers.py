"""Who started the ranks of a log, and how the same training is started with one rank, or watched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Launcher:
    """One launcher: its ``name``, and what a log has of it, as a pattern.

    ``one_rank`` starts the same training with one rank, ``watched`` watches it.
    """

    name: str
    shown: str
    one_rank: str
    watched: str

    @property
    def all_ranks(self) -> str:
        """The user's own start of all ranks."""
        return self.watched.removeprefix("ddpdoctor run -- ")


TORCHRUN = Launcher(
    "torchrun",
    r"\btorchrun\b|torch[/\\.]distributed[/\\.](?:run|launch)",
    "torchrun --nproc_per_node=1 SCRIPT ...",
    "ddpdoctor run -- torchrun ...",
)
NONE = Launcher("none", "", "python -m pdb SCRIPT", "ddpdoctor run -- python SCRIPT ...")
"""Nothing in the log is of a training: whatever ran was started as any program."""
OF_TRAINING = re.compile(
    r"(?i:\b(?:torch|cuda|nccl|gloo|rank|gpus?|epoch|deepspeed|accelerate|lightning|transformers|horovod|megatron|mpirun"
    r"|srun)(?:\b|_|\d)|local_rank|world_size|train)"
)
LAUNCHERS = (
    Launcher(
        "Ray Train",
        r"\bray[/\\](?:train|tune|_private|dashboard)[/\\]|\bRayTrainWorker\b|\bray\.exceptions\.",
        "TorchTrainer(..., scaling_config=ScalingConfig(num_workers=1))",
        "ddpdoctor run -- python SCRIPT ...",
    ),
    Launcher(
        "Horovod",
        r"\bhorovodrun\b|\bhorovod[/\\](?:runner|torch)[/\\]",
        "horovodrun -np 1 python SCRIPT ...",
        "ddpdoctor run -- horovodrun ...",
    ),
    Launcher(
        "Lightning",
        r"\b(?:pytorch_lightning|lightning[/\\]pytorch)[/\\](?:trainer|strategies)[/\\]",
        'Trainer(devices=1, num_nodes=1, strategy="auto")',
        "ddpdoctor run -- python SCRIPT ...",
    ),
    Launcher(
        "DeepSpeed",
        r"\bdeepspeed[/\\]launcher[/\\]|\[launch\.py:\d+:\w+\]",
        "deepspeed --num_gpus=1 SCRIPT ...",
        "ddpdoctor run -- deepspeed ...",
    ),
    Launcher(
        "Accelerate",
        r"\baccelerate[/\\]commands[/\\]|\baccelerate launch\b",
        "accelerate launch --num_processes=1 SCRIPT ...",
        "ddpdoctor run -- accelerate launch ...",
    ),
    Launcher(
        "mp.spawn",
        r"\btorch[/\\]multiprocessing[/\\]spawn\.py|torch\.multiprocessing\.spawn",
        "mp.spawn(..., nprocs=1)",
        "ddpdoctor run -- python SCRIPT ...",
    ),
)


def launcher_of(texts: Iterable[str]) -> Launcher:
    """Return who started the ranks, by what a log says; torchrun where it does not tell, unless it is no training's."""
    said = "\n".join(texts)
    known = next((each for each in LAUNCHERS if re.search(each.shown, said)), None)
    return known or (TORCHRUN if OF_TRAINING.search(said) else NONE)
