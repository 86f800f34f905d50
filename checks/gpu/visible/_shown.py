"""How many GPUs a launcher sees, by the launch script."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Launch, LaunchScript


def gpus_shown(launch: LaunchScript, each: Launch) -> tuple[int, int] | None:
    """Return how many GPUs a launcher sees, and the line that says so; None where that is not certain."""
    own = [word for name, word in each.command.assigned if name == "CUDA_VISIBLE_DEVICES"]
    own += (
        [each.value for each in launch.settings if each.name == "CUDA_VISIBLE_DEVICES" and each.value]
        if not own
        else []
    )
    if own and each.tool == "deepspeed":
        return None  # it takes its own choice of GPUs
    if own:
        listed = (launch.value(own[0]) or "").split(",")
        is_sure = len(own) == 1 and own[0].line <= each.command.words[-1].line and all(e.isdecimal() for e in listed)
        return (len(set(listed)), own[0].line) if is_sure else None
    if launch.containers:
        return _limit(launch, each)
    asked = launch.gpus()
    return (asked[0], asked[1].line) if asked else None


def _limit(launch: LaunchScript, each: Launch) -> tuple[int, int] | None:
    """Return how many GPUs a container of Kubernetes is given."""
    for one in launch.containers:
        limit = one.node.get("resources", "limits", "nvidia.com/gpu")
        if limit is not None and limit.number is not None and each.is_of(one.commands):
            return limit.number, limit.line
    return None
