"""Of several communications under way, the source says which one a line waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.source.works import waited_work

HEAD = "import torch.distributed as dist\n"
FUNCTION = """
def other(x):
    work = dist.reduce(x, 0, async_op=True)
def exchange(x, y):
    work = dist.all_reduce(x, async_op=True)
    later = dist.broadcast(y, 0, async_op=True)
    work.wait()  # here
"""
MODULE = """
def other(x):
    work = dist.reduce(x, 0, async_op=True)
work = dist.all_reduce(x, async_op=True)
later = dist.broadcast(y, 0, async_op=True)
work.wait()  # here
"""
ATTRIBUTE = """
class Sender:
    def begin(self, x):
        self.work = dist.isend(x, 1)
    def end(self):
        self.work.wait()  # here
"""
LISTED = """
def both(x, y):
    works = [dist.isend(x, 1), dist.irecv(y, 1)]
    for work in works:
        work.wait()  # here
"""
UNPACKED = """
class Tracker:
    def track(self, step, value):
        handle = dist.all_reduce(value, group=self.group, async_op=True)
        self.pending.append((step, value, handle))
    def flush(self):
        for step, value, handle in self.pending:
            handle.wait()  # here
"""
UNKNOWN = """
def wait(work):
    work.wait()  # here
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FUNCTION, "all_reduce"),
        (MODULE, "all_reduce"),
        (ATTRIBUTE, "send"),
        (LISTED, "batch_isend_irecv"),
        (UNPACKED, "all_reduce"),
        (UNKNOWN, ""),
    ],
    ids=["of its function", "of the module", "of an object", "both ways", "of a list of tuples", "of who calls"],
)
def test_the_handle_tells_what_is_waited_for(tmp_path: Path, text: str, expected: str) -> None:
    """A name is that of its own function, or of the module; an attribute is the object's, wherever it is given."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + text)
    line = next(number for number, each in enumerate(path.read_text().splitlines(), 1) if "# here" in each)

    assert waited_work(str(path), line) == expected
