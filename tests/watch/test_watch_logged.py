"""An exception of the script's own in whose handler it logs: named where its rank has gone on without the others."""

from __future__ import annotations

import pytest
from helpers import Command, Run, Script

TEXT = """
import logging
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def train(rank):
    model = DistributedDataParallel(nn.Linear(4, 1))
    for step in range(6):
        if step == 3 and {fails}:
            {raises}
        model(torch.ones(2, 4)).mean().backward()

dist.init_process_group("gloo")
try:
    train(dist.get_rank())
except Exception as error:
    logging.getLogger("train").error("failed: %s", error)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.usefixtures("no_process_left")
def test_the_exception_is_named_with_its_line(torchrun: Command, ddpdoctor: Run, script: Script) -> None:
    """By its class and by the line that raised it, and not the loop that the rank has left."""
    text = TEXT.format(fails="rank == 1", raises="[0.1, 0.2][step]")
    done = ddpdoctor("run", "--hang-after", "4", "--on-finding", "raise", "--", *torchrun, script(text))
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "[step]" in each)

    assert "rank 1 swallowed IndexError" in " ".join(done.stderr.split())
    assert f":{line}" in done.stderr


@pytest.mark.usefixtures("no_process_left")
def test_one_that_all_ranks_handle_alike_is_nothing(torchrun: Command, ddpdoctor: Run, script: Script) -> None:
    """All of them end the loop, and come to the barrier."""
    text = TEXT.format(fails="True", raises='raise StopIteration("enough")')
    done = ddpdoctor("run", "--hang-after", "4", "--", *torchrun, script(text))

    assert done.returncode == 0
    assert "DDP743" not in done.stderr, done.stderr
