"""Steps measured closely: lines and calls by time, and of one wrapped model what its backward hides, as DDP counts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.host.tcp import Connections, connections, used
from ddpdoctor.watch.events import Profiled
from ddpdoctor.watch.rank.measured.calls import FEWEST, Calls
from ddpdoctor.watch.rank.measured.lines import Lines
from ddpdoctor.watch.rank.stopwatch import now

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.models import ProcessWithModels
    from ddpdoctor.watch.rank.model.wrapped_model import Model

WARM = 10  # steps of an optimizer before the first that is measured
USUAL = 100  # iterations between two that DDP measures by itself


@dataclass(slots=True)
class Profile:
    """So many steps of a process: nanoseconds of each; ``cost`` in seconds.

    Half as many that follow have their calls timed, which makes them longer. DDP's own figures are those of the only
    wrapped model; of several, as of none, none are asked for.
    """

    recorder: ProcessWithModels
    steps: int
    made: int = 0
    told: int = 0
    unused: int = 0
    began: int = 0
    before: int = 0
    recorded: int = 0
    cost: float = 0.0
    model: Model | None = None
    counts: tuple[int, int, int] = (0, 0, 0)
    total: list[int] = field(default_factory=list)
    exposed: list[int] = field(default_factory=list)
    hidden: list[int] = field(default_factory=list)
    worked: list[int] = field(default_factory=list)
    opened: int = 0
    connected: Connections = field(default_factory=dict)
    calls: Calls = field(init=False)
    lines: Lines = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no call timed."""
        self.calls, self.lines = Calls(self.recorder), Lines(self.recorder)

    def stepped(self) -> bool:
        """Take note of the end of an optimizer's step; return whether that was the last to be measured."""
        began = time.perf_counter()
        end, worked, self.made = now(), time.thread_time_ns(), self.made + 1
        if self.made == WARM:
            self._begin()
        elif self.told:
            if self.made - self.told == max(FEWEST, self.steps // 2):
                self.ends()
                return True
        elif self.made > WARM + 1:  # what DDP tells is of the iteration before
            self.total.append(end - self.began)
            self.worked.append(worked - self.before)
            self.recorded += _is_recorded()
            told = self._told_by_ddp()
            if len(self.total) == self.steps:
                self._complete(told)
        self.lines.step = self.made
        self.calls.stepped(self.made)
        self.began, self.before = now(), time.thread_time_ns()
        self.cost += time.perf_counter() - began
        return False

    def _begin(self) -> None:
        alive = self.recorder.models.alive()
        self.model = alive[0] if len(alive) == 1 else None
        self._sample_each(1)
        forwards, synced = (self.model.forwards, self.model.synced) if self.model is not None else (0, 0)
        self.counts = forwards, synced, self.recorder.stopwatch.backwards
        self.recorder.last_looks.append(self.left)
        self.opened, self.connected = now(), connections()
        self.lines.begin()

    def _sample_each(self, iterations: int) -> None:
        """Let DDP measure one of so many iterations."""
        if self.model is not None and (wrapper := self.model.wrapper()) is not None:
            wrapper._set_ddp_runtime_logging_sample_rate(iterations)  # noqa: SLF001 - torch's way to its statistics

    def _told_by_ddp(self) -> dict[str, Any]:
        """Take up what DDP has measured of its last iteration; empty where it is not the only model's."""
        wrapper = self.model.wrapper() if self.model is not None else None
        if wrapper is None or self.model is None or len(self.recorder.models.alive()) > 1:
            self._sample_each(USUAL)
            self.model = None
            self.hidden, self.exposed = [], []
            return {}
        told: dict[str, Any] = wrapper._get_ddp_logging_data()  # noqa: SLF001 - as above
        hidden = int(told.get("backward_compute_comm_overlap_time", 0))
        self.hidden.append(hidden)
        self.unused = max(self.unused, int(told.get("unused_parameter_size", 0)))
        self.exposed.append(max(0, int(told.get("backward_comm_time", 0)) - hidden))
        return told

    def _complete(self, told: dict[str, Any]) -> None:
        """Tell of the steps that were measured, and time the calls of those that follow."""
        wrapper = self.model.wrapper() if self.model is not None else None
        self._sample_each(USUAL)
        self.lines.end(self.made - WARM)
        self.cost += self.lines.cost
        self._tell(self.model, wrapper, told)
        self.told = self.made
        self.calls.begin()
        self.recorder.last_looks.append(self.ends)

    def ends(self) -> None:
        """Tell the calls of the steps so far, once."""
        self.calls.end(self.made - self.told)

    def left(self) -> None:
        """Leave nothing behind where the training ends before all steps are measured; tell what was seen of them."""
        if not self.told:
            self._sample_each(USUAL)
        self.lines.end(self.made - WARM)

    def forget(self) -> None:
        """Leave nothing behind in a child that was forked."""
        self.calls.forget()
        self.lines.forget()

    def _tell(self, model: Model | None, wrapper: Any, told: dict[str, Any]) -> None:
        steps = self.made - WARM
        buffers = _broadcast(wrapper)
        buckets = str(told.get("rebuilt_bucket_sizes") or told.get("bucket_sizes") or "")
        forwards, synced, backwards = self.counts
        parameters = list(wrapper.parameters()) if wrapper is not None else []
        self.recorder.emit(
            Profiled,
            model=model.number if model is not None else -1,
            total=tuple(self.total),
            exposed=tuple(self.exposed),
            hidden=tuple(self.hidden),
            worked=tuple(self.worked),
            buckets=tuple(int(each) for each in buckets.replace(",", " ").split() if each.isdecimal()),
            forwards=(model.forwards - forwards) / steps if model is not None else 0.0,
            synced=(model.synced - synced) / steps if model is not None else 0.0,
            backwards=(self.recorder.stopwatch.backwards - backwards) / steps,
            cost=self.cost / steps,
            largest=max((each.numel() * each.element_size() for each in parameters), default=0),
            searches=wrapper is not None and bool(wrapper.find_unused_parameters) and not wrapper.static_graph,
            unused=self.unused,
            broadcast=sum(buffers.values()),
            largest_buffer=max(buffers, key=lambda name: buffers[name], default=""),
            anomalies=_looks_for_anomalies(),
            recorded=self.recorded,
            window=now() - self.opened,
            links=used(self.connected, connections()),
            double=_doubled(parameters),
        )


def _doubled(parameters: list[Any]) -> float:
    """Return what share of the numbers of parameters is float64 by itself: 0 where torch's default is float64."""
    import torch

    if torch.get_default_dtype() == torch.float64:
        return 0.0
    wide = sum(int(each.numel()) for each in parameters if each.dtype == torch.float64)
    return wide / max(1, sum(int(each.numel()) for each in parameters))


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


def _is_recorded() -> bool:
    """Whether torch's profiler records what this step does."""
    import torch

    return bool(getattr(torch._C._autograd, "_profiler_enabled", bool)())  # noqa: SLF001 - as torch.autograd.profiler itself asks
