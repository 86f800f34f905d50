"""Steps measured closely: what of the communication the backward hides, as DDP's own logger counts it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import Profiled
from ddpdoctor.watch.rank.calls import FEWEST, Calls
from ddpdoctor.watch.rank.lines import Lines
from ddpdoctor.watch.rank.stopwatch import now

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.models import ProcessWithModels
    from ddpdoctor.watch.rank.model.wrapped_model import Model

WARM = 10  # steps of an optimizer before the first that is measured
USUAL = 100  # iterations between two that DDP measures by itself


@dataclass(slots=True)
class Profile:
    """So many steps of the only wrapped model of a process: nanoseconds of each; ``cost`` in seconds.

    Half as many that follow have their calls timed, which makes them longer.
    """

    recorder: ProcessWithModels
    steps: int
    made: int = 0
    told: int = 0
    unused: int = 0
    began: int = 0
    cost: float = 0.0
    counts: tuple[int, int, int] = (0, 0, 0)
    total: list[int] = field(default_factory=list)
    exposed: list[int] = field(default_factory=list)
    hidden: list[int] = field(default_factory=list)
    calls: Calls = field(init=False)
    lines: Lines = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no call timed."""
        self.calls, self.lines = Calls(self.recorder), Lines(self.recorder)

    def stepped(self) -> bool:
        """Take note of the end of an optimizer's step; return whether that was the last to be measured."""
        began = time.perf_counter()
        alive = self.recorder.models.alive()
        model, wrapper = alive[0] if alive else None, alive[0].wrapper() if alive else None
        if model is None or wrapper is None or len(alive) > 1:
            return False
        end, self.made = now(), self.made + 1
        if self.made == WARM:
            wrapper._set_ddp_runtime_logging_sample_rate(1)  # noqa: SLF001 - torch's documented way to its statistics
            self.counts = model.forwards, model.synced, self.recorder.stopwatch.backwards
            self.lines.begin()
        elif self.told:
            if self.made - self.told == max(FEWEST, self.steps // 2):
                self.ends()
                return True
        elif self.made > WARM + 1:  # what DDP tells is of the iteration before
            told = wrapper._get_ddp_logging_data()  # noqa: SLF001 - as above
            hidden = int(told.get("backward_compute_comm_overlap_time", 0))
            self.total.append(end - self.began)
            self.hidden.append(hidden)
            self.unused = max(self.unused, int(told.get("unused_parameter_size", 0)))
            self.exposed.append(max(0, int(told.get("backward_comm_time", 0)) - hidden))
            if len(self.total) == self.steps:
                wrapper._set_ddp_runtime_logging_sample_rate(USUAL)  # noqa: SLF001 - as above
                self.lines.end(self.made - WARM)
                self.cost += self.lines.cost
                self._tell(model, wrapper, told)
                self.told = self.made
                self.calls.begin()
                self.recorder.last_looks.append(self.ends)
        self.calls.step = self.lines.step = self.made
        self.began = now()
        self.cost += time.perf_counter() - began
        return False

    def ends(self) -> None:
        """Tell the calls of the steps so far, once."""
        self.calls.end(self.made - self.told)

    def forget(self) -> None:
        """Leave nothing behind in a child that was forked."""
        self.calls.forget()
        self.lines.forget()

    def _tell(self, model: Model, wrapper: Any, told: dict[str, Any]) -> None:
        steps = self.made - WARM
        buffers = _broadcast(wrapper)
        buckets = str(told.get("rebuilt_bucket_sizes") or told.get("bucket_sizes") or "")
        self.recorder.emit(
            Profiled,
            model=model.number,
            total=tuple(self.total),
            exposed=tuple(self.exposed),
            hidden=tuple(self.hidden),
            buckets=tuple(int(each) for each in buckets.replace(",", " ").split() if each.isdecimal()),
            forwards=(model.forwards - self.counts[0]) / steps,
            synced=(model.synced - self.counts[1]) / steps,
            backwards=(self.recorder.stopwatch.backwards - self.counts[2]) / steps,
            cost=self.cost / steps,
            largest=max((each.numel() * each.element_size() for each in wrapper.parameters()), default=0),
            searches=bool(wrapper.find_unused_parameters) and not wrapper.static_graph,
            unused=self.unused,
            broadcast=sum(buffers.values()),
            largest_buffer=max(buffers, key=lambda name: buffers[name], default=""),
            anomalies=_looks_for_anomalies(),
        )


def _broadcast(wrapper: Any) -> dict[str, int]:
    """Return the bytes of each buffer that a wrapper sends before each forward, by name."""
    if not (getattr(wrapper, "modules_buffers", None) and wrapper.will_sync_module_buffers()):
        return {}
    sent = {id(each) for each in wrapper.modules_buffers}
    return {
        name: each.numel() * each.element_size() for name, each in wrapper.module.named_buffers() if id(each) in sent
    }


def _looks_for_anomalies() -> bool:
    import torch

    return bool(torch.is_anomaly_enabled())
