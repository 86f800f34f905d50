"""Shapes of flat shards in what torch says of a sharded checkpoint."""

from __future__ import annotations

import math
import re

from ddpdoctor.check import (
    Finding,
    Fix,
    Record,
)


def flat(saved: str, now: str) -> str | None:
    """Return which side is a rank's flat piece of the other: as many numbers, or a whole part of them."""
    sides = {"checkpoint": [*map(int, re.findall(r"\d+", saved))], "model": [*map(int, re.findall(r"\d+", now))]}
    for name, other in (("model", "checkpoint"), ("checkpoint", "model")):
        piece, whole = sides[name], sides[other]
        if len(piece) == 1 < len(whole) and piece[0] not in {0, *whole} and math.prod(whole) % piece[0] == 0:
            return name
    return None


def of_flat_shards(record: Record, match: re.Match[str], flat: str) -> Finding:
    piece, whole = (match["now"], match["saved"]) if flat == "model" else (match["saved"], match["now"])
    return Finding(
        f"{match['key']} is a flat piece of FSDP's in the {flat}, {piece}, and a whole tensor beside it, {whole}",
        (record.proof(match, "one kind of state dict at saving and at loading"),),
        Fix(
            "take the state dict by one function at both, which knows FSDP",
            diff="+from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict\n"
            "-state = {'model': model.state_dict()}\n+state = {'model': get_model_state_dict(model)}\n"
            " dcp.load(state, checkpoint_id=path)\n+set_model_state_dict(model, state['model'])",
        ),
        record.place,
    )
