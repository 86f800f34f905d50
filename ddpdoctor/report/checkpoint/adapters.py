"""What keys tell of adapters (PEFT), and of a part of the model that all of them begin with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.keys import shared_front

if TYPE_CHECKING:
    from collections.abc import Sequence

OF_PEFT = "base_model.model."
ADAPTER = re.compile(
    r"\.(?:lora_(?:A|B|embedding_[AB]|magnitude_vector)|ia3_l|hada_w[12]_[ab]|lokr_w[12])\b(?:\.(?!weight)(\w+))?"
)
MODULE = "module."


def adapter_of(keys: Sequence[str]) -> str:
    """Return what of PEFT is in a state dict: an adapter, or a model with one; empty where nothing is."""
    found = [match for key in keys if (match := ADAPTER.search(key))]
    if not found:
        return ""
    named = sorted({match[1] for match in found if match[1]})
    own = f"; {OF_PEFT} is PEFT's own" if any(OF_PEFT in key for key in keys) else ""
    if len(found) == len(keys) and not named:
        return f"of PEFT, without its base model: PeftModel.from_pretrained(base_model, FOLDER) loads it{own}"
    name = f" {', '.join(named)}" if named else ""
    alone = "without the base model" if len(found) == len(keys) else "with the base model"
    return f"of PEFT{name}, {alone}, as the PeftModel's state_dict() names it: load it into get_peft_model(...){own}"


def shared_part(keys: Sequence[str]) -> str:
    """Return the layers, as ``learner.policy.``, that all keys begin with; empty where there are none, or one key."""
    if len(keys) < 2:  # noqa: PLR2004 - one key has a front, and shares it with none
        return ""
    first, last = min(keys).split(".")[:-1], max(keys).split(".")[:-1]  # between them are all others
    count = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), None)
    shared = first[: min(len(first), len(last))] if count is None else first[:count]
    return "".join(f"{name}." for name in shared)


def of_lightning(keys: Sequence[str]) -> str:
    """Return what stands before the model's own keys in a LightningModule's: its attribute, and wrappers behind it."""
    behind = shared_front([key.removeprefix("model.") for key in keys])
    return "".join(f"{name}." for name in ("model", *behind))
