"""How a rank came to its end before the others: by a line of the script, by a signal, or by sizes that differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from helpers import CHECKS, Command, Run, Script

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import (
    Communication,
    EpochEnded,
    EpochStarted,
    Event,
    Failed,
    Joined,
    PeerLost,
    Progress,
    Site,
)

HEAD = """
import logging, os, sys, time, traceback
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ["RANK"])

def steps(number):
    model = DDP(nn.Linear(4, 4))
    for _ in range(number):
        model(torch.randn(2, 4)).sum().backward()
"""
SCRIPTS = {
    "it calls sys.exit": (
        "rank-left-early",
        "rank 1 has left by sys.exit(0)",
        """
        def stop(rank):
            if rank == 1:
                sys.exit(0)  # guilty
        dist.init_process_group("gloo")
        steps(2)
        stop(RANK)
        steps(1)
        """,
    ),
    "it is interrupted": (
        "rank-left-early",
        "rank 1 was interrupted (SIGINT)",
        """
        import signal
        dist.init_process_group("gloo")
        steps(2)
        if RANK == 1:
            os.kill(os.getpid(), signal.SIGINT)  # guilty
        steps(1)
        """,
    ),
    "it comes to its end while rank 0 gathers the shards": (
        "rank0-only-collective",
        "under `if RANK == 0`: rank 1 has skipped it and come to its end",
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        def export(model):
            return {name: each.full_tensor() for name, each in model.state_dict().items()}
        dist.init_process_group("gloo")
        model = fully_shard(nn.Linear(4, 4), mesh=init_device_mesh("cpu", (2,)))
        for _ in range(2):
            model(torch.randn(2, 4)).sum().backward()
        if RANK == 0:
            time.sleep(1)
            export(model)  # guilty
        dist.destroy_process_group()
        """,
    ),
    "it answers an exception by sys.exit": (
        "one-rank-failed",
        "rank 1 failed first: KeyError: 'label'",
        """
        def read(batch):
            return batch["label"]  # guilty
        def train():
            try:
                read({"label": 1} if RANK == 0 else {})
            except Exception:
                traceback.print_exc()
                sys.exit(1)
        dist.init_process_group("gloo")
        steps(2)
        train()
        steps(1)
        """,
    ),
}
HEALTHY = """
def parse():
    sys.exit(2)
def stop():
    sys.exit(0)
dist.init_process_group("gloo")
try:
    parse()
except SystemExit:
    steps(1)
try:
    if RANK == 1:
        raise ConnectionError("reset by peer")
except ConnectionError:
    logging.exception("once more")
steps(2)
dist.barrier()
if RANK == 1:
    os._exit(0)
stop()
"""


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("name", SCRIPTS)
def test_what_ended_the_rank_is_named(name: str, torchrun: Command, ddpdoctor: Run, script: Script) -> None:
    """One finding, at the line that ended it."""
    slug, message, text = SCRIPTS[name]
    done = ddpdoctor("run", "--", *torchrun, path := script(HEAD + dedent(text)))
    told = re.findall(r"^ddpdoctor: (?:error|warning|note) \S+ (\S+): ", done.stderr, re.MULTILINE)

    assert told == [slug], done.stderr
    guilty = next(number for number, line in enumerate(Path(path).read_text().splitlines(), 1) if "# guilty" in line)
    assert message in " ".join(done.stderr.split())
    assert f"where     {path}:{guilty}" in done.stderr


@pytest.mark.usefixtures("no_process_left")
def test_nothing_is_said_where_all_ranks_end_well(torchrun: Command, ddpdoctor: Run, script: Script) -> None:
    """A SystemExit that is caught, an exception that is logged, and ranks that leave together, each in its way."""
    done = ddpdoctor("run", "--", *torchrun, script(HEAD + HEALTHY))

    assert done.returncode == 0, done.stderr
    assert not re.search(r"^ddpdoctor: (error|warning|note)", done.stderr, re.MULTILINE), done.stderr


LOADER: dict[str, Any] = {
    "dataset": "Lines",
    "length": None,
    "batches": None,
    "batch_size": 4,
    "drop_last": False,
    "workers": 0,
    "iterable": True,
    "sampler": None,
    "given": 0,
    "owning_library": "",
    "subgroups": False,
}
HERE = Site("/work/train.py", 12, "epoch")
THERE = Site("/work/train.py", 14, "epoch")


def call(number: int, operation: str, shapes: str, site: Site) -> Communication:
    """Return a communication of the default group."""
    return Communication(number=number, time=number, operation=operation, group="0", shapes=shapes, site=site)


def said(ranks: Sequence[Progress], events: Sequence[Event] = ()) -> list[tuple[str, str]]:
    """Return what is said where rank 1 is gone, and rank 0 has lost its connection."""
    dispatcher = Dispatcher(CHECKS)
    for rank in (0, 1):
        dispatcher.trainings.add(Joined(pid=10 + rank, time=0, rank=rank, world_size=2, backend="gloo"))
    for each in events:
        dispatcher.trainings.add(each)
    text = "RuntimeError: Connection reset by peer"
    lost = Failed(pid=10, time=50, rank=0, site=THERE, error="RuntimeError", text=text)
    event = PeerLost(pid=0, time=60, first=None, others=(lost,), gone=(1,), progress=tuple(ranks))
    training = dispatcher.trainings.all
    return [(each.check.slug, each.finding.message) for each in dispatcher.see_of(training, event)]


class TestSizesThatDiffer:
    """gloo ends a process that is sent more than it made room for; the last communications tell why."""

    def test_one_collective_with_other_shapes(self) -> None:
        """The first of one number, not the last."""
        calls = [(call(1, "broadcast", f"[{size}]", HERE), call(2, "barrier", "", THERE)) for size in (3, 2)]

        ((slug, message),) = said([Progress(rank=rank, forwards=2, recent=calls[rank]) for rank in (0, 1)])
        assert slug == "collective-shape-mismatch"
        assert message.startswith("broadcast at train.py:12: rank 0 gives shape [3], rank 1 [2]; rank 1 ended there")

    @pytest.mark.parametrize(
        ("last", "expected"), [("[5, 4]", "collective-shape-mismatch"), ("[8, 4]", "rank-died-or-stuck")]
    )
    def test_gathered_tensors(self, last: str, expected: str) -> None:
        """Of the rank that is gone, its last call; NCCL gathers such."""
        ranks = [
            Progress(rank=rank, forwards=0, recent=(call(7, "all_gather", size, HERE),))
            for rank, size in enumerate(("[8, 4]", last))
        ]

        assert [slug for slug, _ in said(ranks)] == [expected]

    @pytest.mark.parametrize(("complete", "expected"), [(True, "uneven-inputs"), (False, "ranks-diverge")])
    def test_a_rank_that_had_gone_on(self, expected: str, *, complete: bool) -> None:
        """Out of batches, where the loader has told so; else ahead of the other."""
        passes: list[Event] = [
            EpochStarted(pid=10 + rank, time=1, rank=rank, loader=0, number=0, training=True, **LOADER)
            for rank in (0, 1)
        ] + [EpochEnded(pid=11, time=9, rank=1, loader=0, number=0, batches=20, complete=complete)]
        going = Progress(rank=0, forwards=21, recent=(call(1, "broadcast", "[4]", HERE),))
        done = Progress(
            rank=1, forwards=20, recent=(call(1, "broadcast", "[4]", HERE), call(2, "all_reduce", "[1]", THERE))
        )

        ((slug, message),) = said([going, done], passes)
        assert slug == expected
        assert (
            "went on to all_reduce at train.py:14" in message or "had gone on to all_reduce at train.py:14" in message
        )

    def test_nothing_of_sizes_where_they_are_alike(self) -> None:
        """Then it is not known what ended the rank."""
        alike = [Progress(rank=rank, forwards=3, recent=(call(4, "all_reduce", "[8]", HERE),)) for rank in (0, 1)]

        assert [slug for slug, _ in said(alike)] == ["rank-died-or-stuck"]
