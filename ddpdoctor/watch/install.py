"""Switches the watch on and off in this process."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

from ddpdoctor.watch.recorder import Recorder
from ddpdoctor.watch.settings import Settings, inherited


class Attached:
    """The watch of this process; ``undo`` restores everything."""

    def __init__(self, settings: Settings) -> None:
        """Replace what is watched."""
        from ddpdoctor.watch.hooks import errors, files, groups, loaders, models, optimizers

        self.recorder = Recorder(settings)
        self._patches: list[Any] = [
            each for hooks in (errors, files, groups, loaders, models, optimizers) for each in hooks.hook(self.recorder)
        ]
        rank = os.environ.get("RANK", "")
        # A worker of a DataLoader that was spawned has the variables of its rank too, and is left alone.
        if rank.isdecimal() and multiprocessing.parent_process() is None:
            self.recorder.become_rank(int(rank))

    def undo(self) -> None:
        """Restore torch and stop writing."""
        for each in reversed(self._patches):
            each.undo()
        self.recorder.stop()


def attach() -> Attached | None:
    """Attach, if this process was started by ``ddpdoctor run`` or ``ddpdoctor check -- COMMAND``."""
    settings = inherited()
    return None if settings is None else Attached(settings)
