"""Which setting put the tensors of one operation on two GPUs: the same message for several causes."""

from __future__ import annotations

import enum
import re

from ddpdoctor.check import Log, Record

from .._logs import IN_PARALLEL, REPLICA, SEVERAL, TRAINER, beside

TWO_GPUS = (
    r"Expected all tensors to be on the same device"
    r"|Expected tensor for argument #\d+ '\w+' to have the same device as tensor for argument"
    r"|arguments are located on different GPUs"
)
SPLIT = r"accelerate[/\\]hooks\.py|hf_device_map|device_map\s*=|dispatch_model\("
BY_PYTHON = r"(?:^|\n)[^\n\w]{0,3}\$? ?(?:CUDA_VISIBLE_DEVICES=\S+ )?python[\d.]* (?!-m )[\w./-]+\.py\b"
CONTEXT = (REPLICA, IN_PARALLEL, TRAINER, SPLIT, SEVERAL, BY_PYTHON)


class Setting(enum.Enum):
    """What the log shows of the program; the last four are no proof."""

    REPLICA = "a replica of DataParallel"
    TRAINER = "Trainer's own DataParallel"
    SPLIT = "a model that Accelerate split over GPUs"
    RANKS = "several ranks"
    PYTHON = "one process, started with python"
    UNKNOWN = "nothing"
    OTHER = "a CPU tensor, and no replica"


def setting(record: Record, log: Log) -> Setting:
    """Read the record first, then what stands beside it."""
    parallel = beside(record, log, REPLICA) or beside(record, log, IN_PARALLEL)
    if parallel:
        return Setting.TRAINER if beside(record, log, TRAINER) else Setting.REPLICA
    if re.search(r"\bcpu\b", record.text):
        return Setting.OTHER
    if beside(record, log, SPLIT):
        return Setting.SPLIT
    if record.rank is not None or beside(record, log, SEVERAL):
        return Setting.RANKS
    if beside(record, log, TRAINER) or beside(record, log, BY_PYTHON):
        return Setting.PYTHON
    return Setting.UNKNOWN


HARD_CODED = "a tensor or a layer that forward puts on a fixed GPU, or that is not registered (.cuda(), a plain list)"
IMPLICIT = "Trainer's own DataParallel over all visible GPUs (implicit-dataparallel): CUDA_VISIBLE_DEVICES=0 cures it"
SPREAD = "a model split over the GPUs by device_map='auto' (device-map-auto-with-data-parallel)"
LOOK = "python -c \"import torch; print(torch.cuda.device_count())\"; grep -rnE 'device_map|cuda' --include=*.py ."
