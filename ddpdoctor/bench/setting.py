"""One way to wrap a model and to step, and what it gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpdoctor.bench.spread import Spread

ALONE, TOGETHER, DDP = "one rank, without DDP", "all ranks, without DDP", "DDP"
DATA_PARALLEL = "DataParallel"


@dataclass(frozen=True, slots=True)
class Setting:
    """How the model is wrapped: what is passed to ``steps``, and what a user writes for it.

    ``is_free``: it computes the same and asks nothing of the training loop, so that it can be advised.
    """

    name: str
    given: tuple[tuple[str, Any], ...] = ()
    ranks: int | None = None
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """What a setting gave: ``seconds`` of a batch, their ratio to DDP's of the same round; or why it gave nothing."""

    setting: Setting
    seconds: Spread | None = None
    ratio: Spread | None = None
    why_not: str = ""


SETTINGS = (
    Setting(ALONE, (("bare", True),), ranks=1),
    Setting(TOGETHER, (("bare", True),)),
    Setting(DDP),
    Setting("gradient_as_bucket_view=True", (("gradient_as_bucket_view", True),), is_free=True),
    Setting("static_graph=True", (("static_graph", True),)),
    Setting("bucket_cap_mb=1", (("bucket_cap_mb", 1),), is_free=True),
    Setting("bucket_cap_mb=5", (("bucket_cap_mb", 5),), is_free=True),
    Setting("bucket_cap_mb=100", (("bucket_cap_mb", 100),), is_free=True),
    Setting("find_unused_parameters=True", (("find_unused_parameters", True),)),
    Setting("bf16_compress_hook", (("hook", "bf16_compress_hook"),)),
    Setting("no_sync, 4 batches a step", (("accumulate", 4),)),
)
"""What is tried by itself."""

ON_GPUS = Setting(DATA_PARALLEL, (("data_parallel", True),), ranks=1)
"""One process, the batch of all ranks over all GPUs."""
