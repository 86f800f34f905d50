"""Parts of an evaluation that ranks write to files, for somebody to put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import FileOpened, FileWritten

if TYPE_CHECKING:
    from ddpdoctor.check import Training

    from ...._evaluation.evaluations import Share


def write_parts(ranks: dict[int, Share], training: Training) -> bool:
    """Whether a rank other than the first has written a file since its evaluation began."""
    spans = [(each.told.pid, each.started.time, each.told.time) for rank, each in ranks.items() if rank]
    return any(writes(*each, training) for each in spans)


def writes(pid: int, since: float, until: float, training: Training) -> bool:
    """Whether a process has written a file between two moments."""
    written = [*training.of(FileOpened, writes=True), *training.of(FileWritten)]
    return any(each.pid == pid and since <= each.time <= until for each in written)
