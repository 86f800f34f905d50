"""Why `load_state_dict` refused: the one reason that its keys and shapes show, so that no two checks claim it."""

from __future__ import annotations

import enum
from itertools import product
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.keys import COUNTER, Strip, is_flat, strips

if TYPE_CHECKING:
    from ._refusal import Refusal, Shape

CONTAINERS = frozenset(
    "state_dict model model_state_dict model_state net network weights params ema model_ema generator optimizer"
    " optimizer_state_dict optim optimizer_states lr_scheduler lr_schedulers scheduler epoch global_step iteration step"
    " best_acc best_acc1 best_prec1 arch args config meta hyper_parameters callbacks loops amp scaler loss".split()
)
PLACEHOLDERS = {"0", "1"}
OTHER_NETWORK = "the checkpoint is of another network (checkpoint-architecture-mismatch)"


class Reason(enum.Enum):
    """The checks' shares; the value of a wrapper's is its segment."""

    MODULE = "module"
    COMPILED = "_orig_mod"
    CHECKPOINTED = "_checkpoint_wrapped_module"
    FORWARD = "_forward_module"
    SHARDED = "_fsdp_wrapped_module"
    FLAT = "flat parameters"
    AVERAGED = "n_averaged"
    NESTED = "a container of state dicts"
    COUNTERS = "num_batches_tracked only"
    PLACEHOLDERS = "sizes of [0] or [1]"
    OTHER = "another network"
    ONLY_MISSING = "missing keys, nothing else"
    NONE = "nothing"


def reason(refused: Refusal) -> tuple[Reason, Strip, Strip]:
    """Give the reason, and what has to be taken from the file's keys and from the model's to make them equal."""
    in_file, in_model = Strip(), Strip()
    keys = (*refused.missing, *refused.unexpected)
    if any(map(is_flat, keys)):
        return Reason.FLAT, in_file, in_model
    if COUNTER in refused.unexpected:
        return Reason.AVERAGED, in_file, in_model
    in_file, in_model = _best(refused)
    if segments := {*in_file.segments, *in_model.segments}:
        return _wrapper(segments, (*in_file.segments, *in_model.segments)), in_file, in_model
    return _without_wrapper(refused), in_file, in_model


def _wrapper(segments: set[str], ordered: tuple[str, ...]) -> Reason:
    if segments & {"_fsdp_wrapped_module", "_fpw_module"}:
        return Reason.SHARDED
    return Reason.COMPILED if "_orig_mod" in segments else Reason(ordered[0])


def _without_wrapper(refused: Refusal) -> Reason:
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
        return Reason.NONE
    if shapes or unexpected:
        return Reason.OTHER
    return Reason.ONLY_MISSING if missing else Reason.NONE


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
            for file, model in product(strips(refused.unexpected), strips(refused.missing))
        ]
        common, file, model = max(choices, key=lambda choice: choice[0])
        return (file, model) if common >= enough else (Strip(), Strip())
    return Strip(), Strip()
