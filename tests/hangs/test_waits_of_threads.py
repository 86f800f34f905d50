"""What is said of a rank whose thread works, and of ranks that are in several groups at one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ddpdoctor.checks.collectives.absent.slow_rank import while_training
from ddpdoctor.checks.collectives.timeouts.collective_timeout import while_training as in_one_line
from ddpdoctor.watch.events import Doing, Position, Site, Stalled
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding

SITE = Site("/home/user/train.py", 27, "wait")
SAVES = ("Thread-1", Site("/home/user/train.py", 18, "write"))


@pytest.mark.parametrize(
    ("function", "threads", "said"),
    [
        ("threading._wait_for_tstate_lock", None, "and waits for the end of a thread of its own, while rank 1 waits"),
        (
            "threading.join",
            (SAVES,),
            "and waits for the end of its thread Thread-1, at train.py:18, while rank 1 waits",
        ),
        ("re.findall", (SAVES,), "inside re.findall while rank 1 waits"),
    ],
)
def test_a_rank_that_waits_for_its_thread(
    function: str, threads: tuple[tuple[str, Site], ...] | None, said: str
) -> None:
    """It does no work in its own line; else that one works."""
    ranks = (
        Position(
            rank=0, pid=1, doing=Doing.WORKING, seconds=9, site=SITE, stack=(SITE,), function=function, threads=threads
        ),
        Position(rank=1, pid=2, doing=Doing.WAITING, seconds=9, site=SITE, stack=(SITE,), operation="barrier"),
    )
    found: Finding
    (found,) = while_training.examine(Stalled(pid=0, time=9.0, ranks=ranks, world_size=2))

    assert said in found.message


@pytest.mark.parametrize(("loop", "told"), [("for pair in pairs:", True), ("if pairs:", False)])
def test_groups_of_a_loop_are_a_cause_where_no_calls_are_known(tmp_path: Path, loop: str, *, told: bool) -> None:
    """From outside nobody sees which group a rank is in."""
    file = tmp_path / "halo.py"
    file.write_text(f"{loop}\n    dist.all_reduce(border, group=groups[pair])\n")
    site = Site(str(file), 2, "<module>")
    ranks = tuple(
        Position(rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=site, stack=(site,), operation="barrier")
        for rank in (0, 1)
    )
    found: Finding
    (found,) = in_one_line.examine(Stalled(pid=0, time=9.0, ranks=ranks, world_size=2, outside=True), Training())

    assert found.ambiguity is not None
    assert ("several groups, `group=groups[pair]`" in found.ambiguity.causes[0]) is told
