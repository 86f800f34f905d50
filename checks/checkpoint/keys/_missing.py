"""Keys that a sharded checkpoint has not: why some kinds of them are missing, and where the user's line stands."""

from __future__ import annotations

import re

from ddpdoctor.check import Fix, Log, Place, Record

from .._reason import OTHER_NETWORK

GATHERED = r"CheckpointException ranks:dict_keys\("
BY_ACCELERATE = r"in load_fsdp_optimizer\b"
COMPILES = (
    r"(?:[Cc]ompiling|[Cc]ompiled) [^\n]{0,80}torch\.compile|--(?:training\.)?compile\b|OptimizedModule|_orig_mod\."
)
COMPILED = (
    "the model was compiled when it was saved, or is compiled now: _orig_mod. stands in the keys of one side alone"
)
PARTIAL = (
    "-dcp.load(state, checkpoint_id=folder)\n+dcp.load(state, checkpoint_id=folder, "
    "planner=DefaultLoadPlanner(allow_partial_load=True))   # torch >= 2.4; what is missing stays as it is"
)
THERE = (
    'python -c "import torch.distributed.checkpoint as d; '
    "print(*d.FileSystemReader('FOLDER').read_metadata().state_dict_metadata, sep='\\n')\"   # the keys that are there"
)


def where(record: Record, log: Log) -> Place:
    """Return the user's line: it stands in the traceback that names the ranks, above the one of each rank."""
    of_rank = (each for each, _ in log.find(GATHERED) if each.rank in {None, record.rank} and each.users)
    return record.place if record.users else next((each.place for each in of_rank), record.place)


def special(key: str, *, by_accelerate: bool) -> tuple[tuple[str, ...], Fix] | None:
    """Return the causes and the fix for entries that have reasons of their own to be missing."""
    if (
        re.search(r"(?:^|\.)(?:optim(?:izer)?s?\.)?(?:state|exp_avg(?:_sq)?|step|momentum_buffer)\b", key)
        and "optim" in key
    ):
        return NUMBERED if re.search(r"\bstate\.\d+\.", key) and by_accelerate else OPTIMIZERS
    if loaders := re.fullmatch(r"(?:\w+\.)?dp_rank_(\d+)", key):
        return _of_loaders(int(loaders[1]))
    return EXTRA if "_extra_state" in key else None


def _of_loaders(rank: int) -> tuple[tuple[str, ...], Fix]:
    """Return why the state of a rank's loader is not there: it cannot be shared out anew."""
    fewer = f"it was saved by {rank} data-parallel ranks or fewer, and the state of a loader cannot be shared out anew"
    return (
        (*((fewer,) if rank else ()), "the state of the loaders was not saved with it"),
        Fix(
            "resume on as many data-parallel ranks as it was saved by, or begin the data anew",
            command="... --checkpoint.exclude_from_loading dataloader   # torchtitan",
        ),
    )


OPTIMIZERS = (
    (
        "the parameter never got a gradient, so the optimizer that was saved has no state for it",
        "the optimizer was saved before its first step, or not at all",
        OTHER_NETWORK,
    ),
    Fix(
        "let the states be loaded that are there; the others begin at zero",
        diff=PARTIAL,
    ),
)
NUMBERED = (
    (
        "this Accelerate asks for the optimizer's states by the numbers of the parameters, which the file has not",
        "the optimizer was saved before its first step, or not at all",
    ),
    Fix(
        "let a newer Accelerate load it; or save and load the whole state dict from now on",
        command="pip install --upgrade accelerate",
        diff="-fsdp_state_dict_type: SHARDED_STATE_DICT\n+fsdp_state_dict_type: FULL_STATE_DICT",
    ),
)
EXTRA = (
    (
        "another version of Transformer Engine or Megatron wrote it: they keep entries of their own (_extra_state)",
        "the layers were built with other options (fp8, the implementation of a norm) than when it was saved",
    ),
    Fix(
        "load with the versions that wrote it, or tell Megatron to pass over such entries",
        command="... --dist-ckpt-strictness log_unexpected   # Megatron; NeMo: strict load 'log_all'",
    ),
)
