"""Files that one rank writes and another one reads: what the events of both say together."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Failed, FailedAlone, FileOpened, Joined, Site

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


SOURCE = """import os, time
import numpy as np
import torch.distributed as dist

CACHE = f"cache/tokens_{os.getppid()}.npy"

def main(words):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        np.save(CACHE, tokenize(words))
    data = np.load(CACHE)
"""
EARLY = {
    "as it is": (("", ""), 1, True),
    "made by the first of a framework": (("dist.get_rank() == 0", "accelerator.is_main_process"), 1, True),
    "a barrier waits": (("    data =", "    dist.barrier()\n    data ="), 1, False),
    "a loop waits": (("    data =", "    while not os.path.exists(CACHE): time.sleep(1)\n    data ="), 1, False),
    "every rank makes it": (("if dist.get_rank() == 0", "if words"), 1, False),
    "another file is made": (("np.save(CACHE", "np.save('cache/words.npy'"), 1, False),
    "it is only measured": (("np.save(CACHE, tokenize(words))", "print(os.path.getsize(CACHE))"), 1, False),
    "the one that makes it did not find it": (("", ""), 0, False),
}


@pytest.mark.parametrize("name", EARLY)
def test_what_one_rank_alone_makes_and_another_looks_for_at_once_is_told(name: str, tmp_path: Path) -> None:
    """Also where the writer was ended before it opened the file: the source says that nothing waits."""
    (before, after), rank, expected = EARLY[name]
    file = tmp_path / "train.py"
    file.write_text(SOURCE.replace(before, after) if before else SOURCE, encoding="utf-8")
    line = next(at for at, text in enumerate(file.read_text().splitlines(), 1) if "np.load" in text)
    error = "FileNotFoundError: [Errno 2] No such file or directory: 'cache/tokens_77.npy'"
    text = f'Traceback (most recent call last):\n  File "{file}", line {line}, in main\n    data\n{error}'
    failed = Failed(
        pid=7, rank=rank, time=1.0, error="FileNotFoundError", text=text, site=Site(str(file), line, "main")
    )

    found = list(Dispatcher(CHECKS).see(FailedAlone(pid=7, rank=rank, time=2.0, first=failed)))

    slugs = [each.check.slug for each in found]
    assert slugs == ["file-read-while-written" if expected else "one-rank-failed"]
