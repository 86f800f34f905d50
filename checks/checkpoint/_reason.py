"""Why `load_state_dict` refused: the one reason that its keys, its shapes and the log show, told by one check."""

from __future__ import annotations

import enum
import re
from itertools import product
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    AVERAGED_COUNTER,
    FSDP_NAMES,
    Claim,
    Log,
    Marker,
    Record,
    Strip,
    is_flat,
    log_pattern,
    possible_strips,
)

from ._refusal import CONTEXT, REFUSED, refusal
from ._sharded import FSDP_KEY, SHARDED, flat_side, is_sharded, is_uneven

if TYPE_CHECKING:
    from ._refusal import Refusal, Shape

CONTAINERS = frozenset(
    "state_dict model model_state_dict model_state net network weights params ema model_ema generator optimizer"
    " optimizer_state_dict optim optimizer_states lr_scheduler lr_schedulers scheduler epoch global_step iteration step"
    " best_acc best_acc1 best_prec1 arch args config meta hyper_parameters callbacks loops amp scaler loss".split()
)
PLACEHOLDERS = {"0", "1"}
OPTION = re.compile(r"(?:^|\.)param_groups\..*\.(?P<option>[a-z_]+)$")
"""The key of an optimizer's option in a sharded checkpoint, as ``optim.param_groups.fc.weight.lr``."""
OTHER_NETWORK = "the checkpoint is of another network (checkpoint-architecture-mismatch)"


class Reason(enum.Enum):
    """What it comes down to: of each exactly one check speaks; the value of a wrapper's is its segment."""

    MODULE = "module"
    COMPILED = "_orig_mod"
    CHECKPOINTED = "_checkpoint_wrapped_module"
    FORWARD = "_forward_module"
    PRIVATE = "_module"
    SHARDED = "_fsdp_wrapped_module"
    FLAT = "names that FSDP makes"
    FLAT_IGNORED = "flat parameters that strict=False passed over"
    AVERAGED = "n_averaged"
    NESTED = "a container of state dicts"
    COUNTERS = "num_batches_tracked only"
    PLACEHOLDERS = "sizes of [0] or [1]"
    OTHER = "another network"
    FLAT_PARTS = "flat parts in the file"
    INTO_FLAT_PARTS = "flat parts in the model"
    UNEVEN = "parts of tensors that have other sizes"
    ONLY_MISSING = "missing keys, nothing else"
    SHARDS = "missing keys, nothing else, and FSDP"
    MODULE_ON_ONE_SIDE = "module., and the other side is not shown"
    COMPILED_ON_ONE_SIDE = "_orig_mod., and the other side is not shown"


WRAPPERS = {Reason.MODULE, Reason.COMPILED, Reason.CHECKPOINTED, Reason.FORWARD, Reason.PRIVATE, Reason.SHARDED}
IGNORED = {*WRAPPERS, Reason.AVERAGED, Reason.NESTED}
"""What keys that strict=False passed over show for sure."""


def on_refusal(why: Reason) -> Marker:
    """Mark what is shown the words of load_state_dict, where this is the reason."""
    return log_pattern(REFUSED, context=(*CONTEXT, SHARDED), claim=Claim(reason_of, (why,)))


def reason_of(record: Record, match: re.Match[str], log: Log) -> Reason | None:
    """Return what a log shows: what the keys and shapes come down to, or what is left open of them."""
    refused = refusal(record, match, log)
    why = reason(refused)[0]
    if refused.silent:
        ignored = any(map(is_flat, refused.unexpected))
        return Reason.FLAT_IGNORED if ignored else why if why in IGNORED else None
    keys = (*refused.missing, *refused.unexpected)
    is_open = why in {Reason.OTHER, Reason.ONLY_MISSING}
    side = flat_side(refused, record, log) if why is Reason.OTHER else None
    rather = (
        (Reason.FLAT, why not in WRAPPERS and any(map(FSDP_KEY.search, keys))),
        (Reason.MODULE_ON_ONE_SIDE, is_open and refused.one_sided),
        (Reason.COMPILED_ON_ONE_SIDE, is_open and refused.one_sided_compiled and not refused.shapes),
        (Reason.FLAT_PARTS, side == "file"),
        (Reason.INTO_FLAT_PARTS, side == "model"),
        (Reason.UNEVEN, why is Reason.OTHER and is_uneven(refused, record, log)),
        (None, why is Reason.ONLY_MISSING and refused.wrapped),
        (Reason.SHARDS, why is Reason.ONLY_MISSING and is_sharded(record, log)),
    )
    return next((each for each, holds in rather if holds), why)


def reason(refused: Refusal) -> tuple[Reason | None, Strip, Strip]:
    """Return the reason, and what has to be taken from the file's keys and from the model's to make them equal."""
    in_file, in_model = Strip(), Strip()
    keys = (*refused.missing, *refused.unexpected)
    if any(map(is_flat, keys)):
        return Reason.FLAT, in_file, in_model
    if AVERAGED_COUNTER in refused.unexpected:
        return Reason.AVERAGED, in_file, in_model
    in_file, in_model = _best(refused)
    if segments := {*in_file.segments, *in_model.segments}:
        return _wrapper(segments, (*in_file.segments, *in_model.segments)), in_file, in_model
    return _without_wrapper(refused), in_file, in_model


def _wrapper(segments: set[str], ordered: tuple[str, ...]) -> Reason:
    if segments.intersection(FSDP_NAMES):
        return Reason.SHARDED
    return Reason.COMPILED if "_orig_mod" in segments else Reason(ordered[0])


def _without_wrapper(refused: Refusal) -> Reason | None:
    missing, unexpected, shapes = refused.missing, refused.unexpected, refused.shapes
    counters = [key.endswith("num_batches_tracked") for key in (*missing, *unexpected)]
    plain = [key for key in unexpected if "." not in key]
    if counters and all(counters) and not shapes:
        return Reason.COUNTERS
    if missing and plain and len(plain) == len(unexpected) and CONTAINERS & {*plain}:
        return Reason.NESTED
    if shapes and are_placeholders(shapes):
        return Reason.PLACEHOLDERS
    if refused.silent:
        return None
    if shapes or unexpected:
        return Reason.OTHER
    return Reason.ONLY_MISSING if missing else None


def are_placeholders(shapes: tuple[Shape, ...]) -> bool:
    """Recognise what ZeRO-3 leaves of a parameter, on either side: one dimension where the other has several."""
    sides = ([shape.file for shape in shapes], [shape.model for shape in shapes])
    return any({*one} <= PLACEHOLDERS and any("," in size for size in other) for one, other in (sides, sides[::-1]))


def _best(refused: Refusal) -> tuple[Strip, Strip]:
    """Find what makes most of the unexpected keys missing ones, and at least half of the shorter list."""
    enough = max(1, min(len(refused.missing), len(refused.unexpected)) // 2)
    if refused.missing and refused.unexpected:
        choices = [
            (len({*map(file, refused.unexpected)} & {*map(model, refused.missing)}), file, model)
            for file, model in product(possible_strips(refused.unexpected), possible_strips(refused.missing))
        ]
        common, file, model = max(choices, key=lambda choice: choice[0])
        return (file, model) if common >= enough else (Strip(), Strip())
    return Strip(), Strip()
