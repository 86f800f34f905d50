"""Metrics that Lightning reduces over the ranks: each key, and the line that first logs it on this rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.frameworks import LIGHTNING
from ddpdoctor.watch.events import MetricSynced
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.patch import Wrap
    from ddpdoctor.watch.rank.process import Process

MOST = 200  # keys that are told
PLACE = 8  # of sync_dist among the arguments of LightningModule.log


@dataclass(slots=True)
class Synced:
    """The keys that were told."""

    recorder: Process
    told: set[str] = field(default_factory=set)

    def hooks(self) -> list[tuple[str, Wrap]]:
        """Return what is to be hooked, by its full name."""
        return [(f"{each}.core.module.LightningModule.log", self._logging) for each in LIGHTNING.modules]

    def _logging(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def log(module: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            if name not in self.told and self.recorder.is_rank and len(self.told) < MOST:
                self.recorder.safely(self._tell, name, args, kwargs)
            return original(module, name, *args, **kwargs)

        return log

    def _tell(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record it before Lightning begins to reduce it."""
        reduces = kwargs.get("sync_dist", args[PLACE - 1] if len(args) >= PLACE else False)
        if reduces and not kwargs.get("rank_zero_only"):
            self.told.add(name)
            self.recorder.emit(MetricSynced, name=name, site=user_site())
