"""What ``ddpdoctor stuck`` makes of the GPUs of ranks: a stand-in for NVML tells the real pynvml of them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import CHECKS

from ddpdoctor.facets import NotRun
from ddpdoctor.stuck.looks.gpus import Use, uses, waited_for
from ddpdoctor.stuck.told.sighting import Sighted, Sighting
from ddpdoctor.stuck.told.sighting_file import as_data, read_sighting
from ddpdoctor.stuck.told.text import ranks_text
from ddpdoctor.stuck.told.verdict import verdict
from ddpdoctor.watch.events import Doing, Position, Site

_simulated_gpus: Any = importlib.import_module("ddpdoctor.fixtures._simulated_gpus")
GIB = 1 << 30


def described(*gpus: str) -> str:
    """Return a description of GPUs, as the stand-in reads it."""
    return "".join(f"gpu\n{each}\n" for each in gpus)


@pytest.fixture
def rack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the file in which the GPUs of this host are described."""
    try:
        monkeypatch.setenv("LD_LIBRARY_PATH", _simulated_gpus.library().name)
    except NotRun as exc:
        pytest.skip(str(exc))
    monkeypatch.setenv("NVML_TOPOLOGY", str(tmp_path / "topology"))
    return tmp_path / "topology"


def test_each_rank_has_its_gpu(rack: Path) -> None:
    """Nothing is told of a process of somebody else, nor of a GPU that is cut into parts."""
    rack.write_text(described("pid 71\nbusy 100", "pid 72\nbusy 0", "pid 99\nbusy 50", "pid 73\nmig 1", "busy 3"))

    found = uses([71, 72, 73])

    assert {pid: (each.gpu, each.busy) for pid, each in found.items()} == {71: (0, 100), 72: (1, 0)}
    assert uses([7]) == {}


def at(rank: int, busy: int | None, *, moved: str = "", backend: str = "nccl", doing: Doing = Doing.WORKING) -> Sighted:
    """Return a rank whose main thread computes, as one does that waits for its GPU."""
    site = Site("/work/train.py", 7 + rank, "train")
    position = Position(rank=rank, pid=70 + rank, doing=doing, seconds=5.0, site=site, stack=(site,))
    use = None if busy is None else Use(rank, busy, 40 * GIB, 80 * GIB)
    return Sighted(position, "n0", (backend,), 4, moved, use)


def said(*ranks: Sighted) -> str:
    """Return the verdict."""
    return verdict(Sighting(ranks, len(ranks), "n0:29500", "job.0", 1000.0), CHECKS, 5.0).said


def test_the_rank_whose_gpu_idles_is_waited_for() -> None:
    """The others are busy in a kernel of NCCL."""
    assert said(at(0, 100), at(1, 0), at(2, 99)) == (
        "Undecided: rank 1 is at work at train.py:8, and its GPU idles (GPU 1: 0 %, 40 of 80 GiB) while those of the "
        "others are busy: they wait for it in a kernel of NCCL. It hangs if rank 1 does not go on: look again, for "
        "longer (--seconds 60)."
    )


@pytest.mark.parametrize(
    "ranks",
    [
        (at(0, 100), at(1, 100)),
        (at(0, 0), at(1, 0)),
        (at(0, 60), at(1, 0)),
        (at(0, 100), at(1, None)),
        (at(0, 100, moved="train.step 4 to 9"), at(1, 0)),
        (at(0, 100, backend="gloo"), at(1, 0, backend="gloo")),
        (at(0, 100),),
    ],
)
def test_nothing_is_concluded_otherwise(ranks: tuple[Sighted, ...]) -> None:
    """All busy, all idle, some of both; a GPU that is not known; a loop that goes on; gloo; a rank alone."""
    assert said(*ranks) == "This training does not hang: every rank that was seen is at work."


def test_it_is_shown_and_written_down() -> None:
    """In the table, and in a report that is read again, also one of an earlier version."""
    seen = Sighting((at(0, 100), at(1, None)), 2, "n0:29500", "job.0", 1000.0)
    data = json.loads(json.dumps(as_data(seen)))

    assert "GPU 0: 100 %, 40 of 80 GiB" in ranks_text(seen)
    assert read_sighting("report", {"facts": {"stuck": data}}) == seen
    for each in data["ranks"]:
        del each["use"]
    older = read_sighting("report", {"facts": {"stuck": data}})
    assert older is not None
    assert [each.use for each in older.ranks] == [None, None]
    assert waited_for([]) is None
