"""DeepSpeed: its engine is a wrapped model, whose forwards take batches and whose ranks share gradients."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.frameworks import DEEPSPEED
from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import FrameworkSeen, Wrapped
from ddpdoctor.watch.rank.patch import Wrap, patch

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.recorder import Recorder

ENGINE = "deepspeed.runtime.engine"


def hook_when_imported(recorder: Recorder) -> None:
    """Replace the engine's forward, where the user has imported DeepSpeed; at once, and once."""
    engine = getattr(sys.modules.get(ENGINE), "DeepSpeedEngine", None)
    if engine is not None and not hasattr(engine.forward, "ddpdoctor"):
        recorder.late.append(patch(engine, "forward", _forward(recorder)))
        vars(engine)["forward"].ddpdoctor = True
        recorder.frameworks.hook()


def _forward(recorder: Recorder) -> Wrap:
    seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(engine: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank:
                if engine not in seen:
                    seen.add(engine)
                    recorder.safely(_tell, recorder, engine)
                recorder.count(event_log.FORWARDS)
                recorder.safely(recorder.feed.taken, engine, (args, kwargs))
            try:
                return original(engine, *args, **kwargs)
            except Exception as exc:
                recorder.explain(exc, step=True)
                raise

        return forward

    return wrap


def _tell(recorder: Recorder, engine: Any) -> None:
    """Record what DDP's constructor would; the names of parameters are not DDP's to number."""
    import torch.distributed as dist

    recorder.models.made += 1
    parameters = list(engine.module.parameters())
    recorder.emit(
        Wrapped,
        model=recorder.models.made - 1,
        inner=recorder.number("module", engine.module),
        kind=type(engine.module).__name__,
        group=tuple(dist.get_process_group_ranks(engine.data_parallel_group)),
        trainable=(),
        elements=sum(each.numel() for each in parameters if each.requires_grad),
        buffers=sum(1 for _ in engine.module.buffers()),
        broadcast_buffers=False,
        find_unused_parameters=False,
        static_graph=False,
        owning_library="deepspeed",
    )
    recorder.emit(FrameworkSeen, framework=DEEPSPEED.name, wraps=True, stage=engine.zero_optimization_stage())
