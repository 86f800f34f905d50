"""What a checkpoint holds, as data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddpdoctor.checkpoint.keys import (
    AVERAGE,
    Strip,
    assumed_strip,
    common_front,
    counter_in,
    is_averaged,
    is_flat,
    within_average,
    wrapped_parts,
)
from ddpdoctor.checkpoint.pickles.allowed import is_allowed
from ddpdoctor.checkpoint.pickles.dangerous import harm_of
from ddpdoctor.checkpoint.pickles.tensors import ITEM_SIZES
from ddpdoctor.report.checkpoint.adapters import adapter_of

if TYPE_CHECKING:
    from ddpdoctor.checkpoint import CheckpointFile, StateDict

MAKERS = {
    "module": "DataParallel or DistributedDataParallel",
    "_orig_mod": "torch.compile",
    "_fsdp_wrapped_module": "FullyShardedDataParallel",
    "_fpw_module": "FullyShardedDataParallel before torch 1.13",
    "_checkpoint_wrapped_module": "activation checkpointing",
    "_forward_module": "Lightning Fabric",
    "_module": "Opacus (GradSampleModule)",
}


def inspect_data(file: CheckpointFile, *, keys: bool = False) -> dict[str, Any]:
    """Describe a checkpoint for programs."""
    return {
        "path": file.path,
        "format": file.format.name.lower(),
        "size": file.size,
        "damage": file.damage,
        "half_done": file.half_done,
        "opaque": file.opaque,
        "label": file.label,
        "root": file.root,
        "items": [{"key": item.key, "kind": item.kind} for item in file.items],
        "state_dicts": [
            state_dict_data(each) | ({"keys": [entry._asdict() for entry in each.entries]} if keys else {})
            for each in file.state_dicts
        ],
        "modules": [{"location": list(each.location), "kind": each.kind} for each in file.modules],
        "optimizers": [{"location": list(each.location), "names": len(set(each.names))} for each in file.optimizers],
        "notes": [{"label": each.label, "text": each.text, "command": list(each.command)} for each in file.notes],
        "globals": [{"name": name, "weights_only": is_allowed(name), "harm": harm_of(name)} for name in file.globals],
    }


def state_dict_data(state_dict: StateDict) -> dict[str, Any]:
    """Describe a state dict: sizes, dtypes, the prefix of wrappers and who left it."""
    keys = state_dict.keys
    averaged = is_averaged(keys)
    strip = within_average(keys) if averaged else assumed_strip(keys)
    changed = strip.changes([key.removeprefix(AVERAGE) for key in keys] if averaged else keys)
    _, shapes, dtypes, _ = state_dict.entries.columns
    kinds = Counter(zip(shapes, dtypes, strict=True))
    elements = sum(count * math.prod(shape) for (shape, _), count in kinds.items())
    size = sum(count * math.prod(shape) * ITEM_SIZES.get(dtype, 0) for (shape, dtype), count in kinds.items())
    prefix = {"text": str(strip), "keys": changed, "by": makers(strip)} if changed else None
    return {
        "location": list(state_dict.location),
        "tensors": len(keys),
        "elements": elements,
        "bytes": size,
        "dtypes": dict(Counter(dtype or "unknown" for dtype in dtypes).most_common()),
        "prefix": prefix,
        "inside": {} if changed else wrapped_parts(keys),
        "front": _front(keys),
        "kind": _kind(state_dict),
        "adapter": adapter_of(keys),
        "metadata": state_dict.metadata is not None,
        "others": list(state_dict.others),
    }


def _front(keys: Sequence[str]) -> list[str]:
    """Return the segments that all keys begin with."""
    if front := common_front(keys):
        return list(front)
    first = {key.partition(".")[0] for key in keys if "." in key}
    return list(first) if len(first) == 1 and all("." in key for key in keys) else []


def _kind(state_dict: StateDict) -> str:
    if counter := counter_in(state_dict.keys):
        first = "the first " if within_average(state_dict.keys).segments else ""
        return f"the state of an AveragedModel: {first}module. and {counter} are its own"
    if any(map(is_flat, state_dict.keys)):
        return "flat parameters of FSDP: one rank's part"
    sharded = sum(state_dict.entries.columns[3])
    return f"{sharded} of the tensors are shards (DTensor or ShardedTensor): one rank's part" if sharded else ""


def makers(strip: Strip) -> str:
    """Return which wrappers left the prefix."""
    return ", ".join(dict.fromkeys(MAKERS[segment] for segment in strip.segments))
