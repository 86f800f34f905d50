"""The root of a collective, as it is seen from outside: by the variable that the waiting line names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS

from ddpdoctor.host.stack import Frame
from ddpdoctor.stuck.looks.roots import root
from ddpdoctor.stuck.looks.spy import Stack
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Joined, Position, Site, Stalled

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding


def stack(tmp_path: Path, line: str) -> Stack:
    """Return that of a rank in a line, with integers of its function and of torch's."""
    path = tmp_path / "train.py"
    path.write_text(line, encoding="utf-8")
    frames = (
        Frame("/lib/site-packages/torch/distributed/distributed_c10d.py", 9, "broadcast"),
        Frame(str(path), 1, "resume"),
    )
    return Stack(frames, ((("src", 7),), (("src", 1), ("step", 200))))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("dist.broadcast(p, src=src)", ", root 1"),
        ("dist.broadcast(p, src)", ", root 1"),
        ("dist.broadcast(p, src=src, group=own)", ""),
        ("dist.broadcast(p, src, own)", ""),
        ("dist.broadcast(p, src=unknown)", ""),
        ("dist.broadcast(p, src=step - src)", ""),
        ("both = dist.broadcast(p, src=src), dist.broadcast(q, src=src)", ""),
        ("for src in owners: dist.broadcast(p, src=src)", ""),
    ],
)
def test_the_users_own_variable_is_read(tmp_path: Path, line: str, found: str) -> None:
    """Where it is one, and no group is named: ranks of several groups name several roots."""
    assert root("broadcast", stack(tmp_path, line)) == found
    assert root("all_reduce", stack(tmp_path, line)) == ""


def told(tmp_path: Path, roots: tuple[str, str], backend: str = "gloo") -> tuple[str, Finding]:
    """Return the check, and what it says of two ranks at one line that name these roots."""
    path = tmp_path / "train.py"
    path.write_text("dist.broadcast(p, src=src)\n", encoding="utf-8")
    site = Site(str(path), 1, "resume")
    ranks = tuple(
        Position(
            rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=site, operation="broadcast", stack=(site,),
            recent=(Communication(0, 0.0, "broadcast", "", each, site),),
        )
        for rank, each in enumerate(roots)
    )  # fmt: skip
    judge = Dispatcher(CHECKS)
    for rank in range(2):
        list(judge.see(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=2, backend=backend)))
    (found,) = judge.see(Stalled(pid=0, time=2.0, ranks=ranks, world_size=2, outside=True))
    return found.check.slug, found.finding


def test_two_roots_of_one_call_are_the_cause(tmp_path: Path) -> None:
    """Both are named, and one rank is to decide."""
    slug, found = told(tmp_path, (", root 0", ", root 1"))

    assert slug == "collective-roots-differ"
    assert "rank 0 names rank 0 of its group for src, rank 1 names rank 1" in found.message
    assert "src=int(root)" in (found.fix.diff or "")


@pytest.mark.parametrize(("backend", "advised"), [("gloo", False), ("nccl", True)])
def test_one_root_tells_nothing(tmp_path: Path, backend: str, advised: bool) -> None:  # noqa: FBT001
    """Then what remains is told, and NCCL's own recorder only where NCCL is."""
    slug, found = told(tmp_path, (", root 1", ", root 1"), backend)

    assert slug == "collective-timeout"
    assert ("NCCL" in (found.fix.command or "")) == advised
