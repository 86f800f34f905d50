"""The metrics by which Lightning and the transformers Trainer choose checkpoints and end trainings, on each rank."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.frameworks import LIGHTNING, RAY
from ddpdoctor.watch.events import Monitored
from ddpdoctor.watch.rank.frameworks.before import before
from ddpdoctor.watch.user_frames import is_users, user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.patch import Wrap
    from ddpdoctor.watch.rank.process import Process

EVALUATION = "eval_"
PLATEAU = "ReduceLROnPlateau"
TRAINER = "Trainer"  # of transformers, whatever a subclass of it is called
STAGES = ("validate", "test")  # of Lightning, called beside a fit: they print what rank 0 has
OF_THE_CLOCK = ("runtime", "_per_second", "_time", "_delta", "_flos")
OF_A_PROCESS = re.compile(r"time|sec|speed|latency|fps|mem|gpu|cpu|rank", re.IGNORECASE)
SCORED = re.compile(r"""checkpoint_score_attribute\s*=\s*["'](?P<name>[^"'\n]+)""")
MOST = 100  # that are told


@dataclass(slots=True)
class Metrics:
    """What was told of metrics: by whom, the metric's name, the step."""

    recorder: Process
    told: set[tuple[str, str, int]] = field(default_factory=set)
    reports: int = 0
    """Calls of Ray Train's ``report``."""

    def hooks(self) -> list[tuple[str, Wrap]]:
        """Return what is to be hooked, by its full name."""
        callbacks = (
            "model_checkpoint.ModelCheckpoint._monitor_candidates",
            "early_stopping.EarlyStopping._run_early_stopping_check",
        )
        watched = [f"{package}.callbacks.{each}" for package in LIGHTNING.modules for each in callbacks]
        connector = "trainer.connectors.logger_connector.logger_connector._LoggerConnector.log_eval_end_metrics"
        return [
            *((name, before(self.recorder, self._of_callback)) for name in watched),
            *((f"{package}.{connector}", before(self.recorder, self._of_stage)) for package in LIGHTNING.modules),
            (f"torch.optim.lr_scheduler.{PLATEAU}.step", before(self.recorder, self._of_plateau)),
            ("transformers.trainer.Trainer.log", before(self.recorder, self._of_trainer)),
            ("ray.train.report", before(self.recorder, self._of_report)),
        ]

    def _of_callback(self, callback: Any, trainer: Any, *_: Any, **__: Any) -> None:
        name = getattr(callback, "monitor", None)
        if name and not getattr(trainer, "sanity_checking", False):
            value = trainer.callback_metrics.get(name)
            self._tell(
                name, value, by=type(callback).__name__, step=trainer.global_step, module=trainer.lightning_module
            )

    def _of_stage(self, connector: Any, metrics: Any, *_: Any, **__: Any) -> None:
        """Record what ``Trainer.test`` and ``validate`` report of data that is shared out."""
        trainer = connector.trainer
        stage = getattr(trainer.state.fn, "value", "")
        if stage in STAGES and any(map(_is_shared_out, _loaders(trainer, stage))):
            for name, value in dict(metrics).items():
                if not OF_A_PROCESS.search(name):
                    by, module = f"{TRAINER}.{stage}", trainer.lightning_module
                    self._tell(name, value, by=by, step=trainer.global_step, module=module)

    def _of_plateau(self, scheduler: Any, metrics: Any = None, *_: Any, **__: Any) -> None:
        """Record a metric by which torch's own scheduler decides; the scheduler reads a tensor as well."""
        if metrics is not None:
            number = self.recorder.number("scheduler", scheduler)
            name = f"the metric of scheduler {number}" if number else "a metric"
            step = scheduler.last_epoch + 1
            self._tell(name, metrics, by=PLATEAU, step=step, module=scheduler)

    def _of_trainer(self, trainer: Any, logs: Any = None, *_: Any, **__: Any) -> None:
        for name, value in dict(logs or {}).items():
            if name.startswith(EVALUATION) and not name.endswith(OF_THE_CLOCK) and _number(value) is not None:
                self._tell(name, value, by=TRAINER, step=trainer.state.global_step, module=trainer)

    def _of_report(self, metrics: Any = None, *_: Any, **__: Any) -> None:
        """Record the metric by which Ray Train is to keep checkpoints, as the script's file names it."""
        self.reports += 1
        site = user_site()
        scored = SCORED.search(_text(site.file)) if site is not None else None
        name = scored["name"] if scored else ""
        if name in dict(metrics or {}):
            self._tell(name, dict(metrics)[name], by=RAY.name, step=self.reports, module=None)

    def _tell(self, name: str, value: Any, *, by: str, step: Any, module: Any) -> None:
        key = by, name, int(step)
        if key not in self.told and len(self.told) < MOST:
            self.told.add(key)
            file = getattr(sys.modules.get(type(module).__module__), "__file__", None) or ""
            self.recorder.emit(
                Monitored, name=name, by=by, value=_number(value), step=key[2], file=file if is_users(file) else ""
            )


def _loaders(trainer: Any, stage: str) -> Iterable[Any]:
    given = trainer.test_dataloaders if stage == "test" else trainer.val_dataloaders
    given = given.values() if isinstance(given, dict) else given
    return given if isinstance(given, Iterable) and not hasattr(given, "sampler") else (given,)


@functools.cache
def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _is_shared_out(loader: Any) -> bool:
    return getattr(getattr(loader, "sampler", None), "num_replicas", 1) > 1


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
