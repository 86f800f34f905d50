"""Switches the watch on and off in this process."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from ddpdoctor.watch.rank.around.session import JOB, job
from ddpdoctor.watch.rank.recorder import Recorder
from ddpdoctor.watch.settings import ON_FINDING, Settings, inherited


class Attached:
    """The watch of this process: a context manager; ``undo`` restores everything."""

    def __init__(self, settings: Settings) -> None:
        """Replace what is watched."""
        from torch.utils.data import DataLoader

        from ddpdoctor.watch.rank.hooks.every import EVERY

        self.recorder = Recorder(settings)
        self._patches: list[Any] = [each for hooks in EVERY for each in hooks.hook(self.recorder)]
        vars(DataLoader)["__iter__"].ddpdoctor = self  # where a second install() finds the first
        rank = os.environ.get("RANK", "")
        # A worker of a DataLoader that was spawned has the variables of its rank too, and is left alone.
        if rank.isdecimal() and multiprocessing.parent_process() is None:
            self.recorder.become_rank(int(rank))
        self.recorder.safely(self._already_joined)

    def _already_joined(self) -> None:
        import torch.distributed as dist

        if dist.is_initialized():
            self.recorder.joined()

    def undo(self) -> None:
        """Restore torch and stop writing."""
        os.environ.pop(JOB, None)
        for each in reversed([*self._patches, *self.recorder.late]):
            each.undo()
        self.recorder.stop()

    def __enter__(self) -> Attached:  # noqa: PYI034 - typing.Self is of Python 3.11
        """Return the watch."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Explain the exception that leaves the block, then restore torch."""
        if exc is not None:
            self.recorder.safely(self.recorder.failed, exc)
        self.undo()


def attach() -> Attached | None:
    """Attach, if this process was started by ``ddpdoctor run`` or ``ddpdoctor check -- COMMAND``."""
    settings = inherited()
    return None if settings is None else Attached(settings)


def attached() -> Attached | None:
    """Return the watch of this process, if it is on."""
    torch_data = sys.modules.get("torch.utils.data")
    return getattr(vars(torch_data.DataLoader)["__iter__"], "ddpdoctor", None) if torch_data else None


def install(*, hang_after: float = 30.0, on_finding: str = "warn", report: str | None = None) -> Attached:
    """Watch the training of this process and of its fellow ranks on this host.

    Call it once in each rank, before or after ``init_process_group``, and before the model is wrapped: of one that was
    wrapped before, the loaders are not compared. It is a context manager too. The first rank of a host starts a
    monitor, a process of its own that ends with the ranks. Under ``ddpdoctor run`` the watch is on already, with that
    command's options, and nothing is done twice.

    Args:
        hang_after: seconds that a rank waits for others before a hang is looked into.
        on_finding: ``warn`` prints a finding to standard error at once, ``raise`` also ends the training with a
            FaultFoundError in every rank, ``log`` only writes the report.
        report: a file for the report in JSON.

    Raises:
        ValueError: ``on_finding`` is none of the three, or ``hang_after`` is not positive.
    """
    if on_finding not in ON_FINDING or hang_after <= 0:
        raise ValueError(f"on_finding is one of {', '.join(ON_FINDING)} and hang_after positive")
    if (already := attached()) is not None:
        return already
    if (settings := inherited()) is not None:
        import torch.utils.data  # noqa: F401 - with which the watch of the command comes, where it was not imported before

        return attached() or Attached(settings)
    report = str(Path(report).absolute()) if report else None
    os.environ.setdefault(JOB, job())  # processes that this one starts are ranks of the same job
    return Attached(Settings(session="", hang_after=hang_after, on_finding=on_finding, report=report))


def uninstall() -> None:
    """Take the watch of this process away; everything in torch is as before."""
    if (watch := attached()) is not None:
        watch.undo()
