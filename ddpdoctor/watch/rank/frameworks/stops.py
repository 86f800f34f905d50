"""How Lightning, the Trainer and Ignite are told to end the training, or to evaluate: who does so, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.frameworks import IGNITE, LIGHTNING, TRAINER
from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import StopAsked
from ddpdoctor.watch.rank.frameworks.before import before
from ddpdoctor.watch.user_frames import PACKAGE, frames, is_users, site_of, user_site, variables_of

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.patch import Wrap
    from ddpdoctor.watch.rank.process import Process

FLAGS = {"should_stop": LIGHTNING.name, "should_training_stop": TRAINER.name, "terminate": IGNITE.name}
MEETS = {"should_evaluate": TRAINER.name, "should_log": TRAINER.name}
"""Flags of one step, after which the ranks meet: to gather what they have found."""
CONTROL = "transformers.trainer_callback.TrainerControl"
TERMINATE = "ignite.engine.engine.Engine.terminate"
ALONE = "ignite.handlers."
"""Of Ignite's own handlers none asks the other ranks before it ends the training: EarlyStopping, TerminateOnNan."""
MOST = 8  # that are told
MOST_MEETINGS = 500


@dataclass(slots=True)
class Stops:
    """How often it was told."""

    recorder: Process
    told: int = 0
    met: int = 0

    def hooks(self) -> list[tuple[str, Wrap]]:
        """Return what is to be hooked, by its full name."""
        owners = (*(f"{each}.trainer.trainer.Trainer" for each in LIGHTNING.modules), CONTROL)
        return [
            *((f"{owner}.__setattr__", self._setting) for owner in owners),
            (TERMINATE, before(self.recorder, self._terminates)),
        ]

    def _terminates(self, *_: Any, **__: Any) -> None:
        if self.told < MOST:
            self._tell("terminate")

    def _setting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __setattr__(owner: Any, name: str, value: Any) -> None:  # noqa: N807 - it stands in for one
            if name not in FLAGS and name not in MEETS:
                original(owner, name, value)
                return
            before = getattr(owner, name, None)
            original(owner, name, value)
            more = self.told < MOST if name in FLAGS else self.met < MOST_MEETINGS
            if value is True and before is not True and self.recorder.is_rank and more:
                self.recorder.safely(self._tell, name)

        return __setattr__

    def _tell(self, name: str) -> None:
        """Record it where a line of the user's sets the flag itself: a framework's own callbacks agree beforehand."""
        setter = next(each for each in frames() if not _is_own(each.f_code.co_filename))
        alone = str(setter.f_globals.get("__name__", "")).startswith(ALONE)
        if alone or is_users(setter.f_code.co_filename):
            if name in FLAGS:
                self.told += 1
            else:
                self.met += 1
            forwards, steps = (self.recorder.writer.counters[each] for each in (event_log.FORWARDS, event_log.STEPS))
            asked = {"framework": (FLAGS | MEETS)[name], "flag": name, "forwards": forwards, "steps": steps}
            by = type(variables_of(setter).get("self")).__name__ if alone else ""
            self.recorder.emit(StopAsked, **asked, by=by, site=user_site() if alone else site_of(setter))


def _is_own(file: str) -> bool:
    return file.startswith(PACKAGE) and not is_users(file)
