"""Files that one rank writes and another one reads: what the events of both say together."""

from __future__ import annotations

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Failed, FileOpened, Joined, Site

READ, WRITTEN = Site("/home/me/train.py", 44, "load"), Site("/home/me/train.py", 35, "build")


def opened(pid: int, path: str, *, writes: bool, time: float) -> FileOpened:
    """Return that a rank, whose number is that of its process, opens a file."""
    return FileOpened(
        pid=pid, rank=pid, time=time, site=WRITTEN if writes else READ, path=path, writes=writes, appends=False,
        size=-1 if writes else 38, communications=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("corpus.pkl", "Traceback ...\nEOFError: Ran out of input", ["file-read-while-written"]),
        ("other.pkl", "Traceback ...\nEOFError: Ran out of input", []),
        ("corpus.pkl", "Traceback ...\nEOFError: the user has closed the terminal", []),
    ],
    ids=["what another rank writes", "what nobody writes", "no file"],
)
def test_a_file_that_ends_too_early_is_told_with_its_writer(path: str, text: str, expected: list[str]) -> None:
    """It was cut where a rank read it last, and another rank had opened that very file to write."""
    judge = Dispatcher(CHECKS)
    for rank in (0, 1):
        list(judge.see(Joined(pid=rank, rank=rank, time=0.0, world_size=2, backend="gloo")))
    list(judge.see(opened(0, "corpus.pkl", writes=True, time=1.0)))
    list(judge.see(opened(1, path, writes=False, time=1.1)))

    found = list(judge.see(Failed(pid=1, rank=1, time=1.2, error="EOFError", text=text)))

    assert [each.check.slug for each in found if each.check.slug == "file-read-while-written"] == expected
    assert all("rank 0 still writes it" in each.finding.message for each in found)
