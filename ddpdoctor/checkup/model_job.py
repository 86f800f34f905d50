"""The job that trains the user's model for a step over all hosts, one rank on each."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

from ddpdoctor.cluster.cluster import GRADIENTS, LAYOUT, MODEL_STEP
from ddpdoctor.cluster.joint.jobs import count, join, same
from ddpdoctor.examine.model.parity import average_only
from ddpdoctor.examine.model.rank import first_look
from ddpdoctor.source.training.wraps.wrapping import read_source

if TYPE_CHECKING:
    from ddpdoctor.cluster.joint.jobs import Said
    from ddpdoctor.examine.model.facts import Description, PlainStep
    from ddpdoctor.examine.target import Target

LONGEST = 3500  # characters of a layout, of which a host tells that many
MODEL_DEADLINE = 60.0  # seconds: the model may be large


def model_job(named: tuple[Target, Target], master: str, port: int, rank: int, world_size: int) -> Said:
    """Train the user's model for a step over all hosts, in a rank; tell how this host's model or step is another."""
    import torch.distributed as dist

    join(master, port, rank, world_size, MODEL_DEADLINE)
    try:
        described, step = first_look(*named, one_a_host=True)
        trouble, layout, way = _looked(described, step)
    except Exception as exc:  # noqa: BLE001 - whatever the user's factory raises on this host
        trouble, layout, way = f"{type(exc).__name__}: {exc}", "", ""
    if failed := count(bool(trouble)):
        everywhere = failed == world_size  # then each host's own look at the model tells
        return (MODEL_STEP, trouble) if trouble and not everywhere else ("", "")
    if not same(layout):
        return LAYOUT, layout
    if not same(way):
        return "", ""
    parity = average_only(*named, way, dict(read_source(described.source).options))
    dist.barrier()
    if not parity.averaged:
        return "", ""
    odd = parity.averaged[0]
    return GRADIENTS, f"{odd.name} has a gradient of norm {odd.seen:.4g}, and the mean has {odd.expected:.4g}"


def _looked(described: Description, step: PlainStep | None) -> tuple[str, str, str]:
    """Return why the bare model takes no step, its layout, and how the batch is passed."""
    trouble = "" if step is None or step.trouble is None else str(step.trouble)
    named = repr([(each.name, each.shape, each.dtype, each.trainable) for each in described.parameters])
    numbers = sum(math.prod(each.shape) for each in described.parameters)
    digest = hashlib.sha256(named.encode()).hexdigest()[:8]
    layout = f"{len(described.parameters)} parameters with {numbers:,} numbers, {digest}"
    listed = [
        f"{each.name} {tuple(each.shape)} {each.dtype}{'' if each.trainable else ', frozen'}"
        for each in described.parameters
    ]
    return trouble, "\n".join([layout, *listed])[:LONGEST], "" if step is None else step.call
