"""Workers of a loader that wait for a semaphore of processes, which one of them has not given back after an error."""

from __future__ import annotations

import pytest
from helpers import COLD_TORCHRUN, Command, Run, Script

TEXT = """
import multiprocessing as mp
import time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

class Scans(Dataset):
    def __init__(self, permits):
        self.permits = permits
    def __len__(self):
        return 16
    def decode(self, index):
        time.sleep(0.4)
        if index == 5:
            raise OSError(index)
        return torch.ones(4)
    def __getitem__(self, index):
        try:
            {take}
        except OSError:
            return torch.zeros(4)

def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(4, 1))
    for batch in DataLoader(Scans(mp.Semaphore(1)), 4, num_workers=1, multiprocessing_context="fork"):
        model(batch).mean().backward()
    dist.barrier()
    dist.destroy_process_group()

main()
"""
LOST = """self.permits.acquire()  # here
            found = self.decode(index)
            self.permits.release()
            return found"""
GIVEN_BACK = """with self.permits:
                return self.decode(index)"""


@pytest.mark.usefixtures("no_process_left")
def test_the_semaphore_is_named_with_its_line(ddpdoctor: Run, script: Script) -> None:
    """And that the line which takes it is followed by no finally."""
    text = TEXT.format(take=LOST)
    path = script(text)
    done = ddpdoctor("run", "--hang-after", "4", "--on-finding", "raise", "--", *COLD_TORCHRUN, path)
    said = " ".join(done.stderr.split())
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "# here" in each)

    assert "a place of self.permits, a Semaphore of processes, all of whose places are taken" in said
    assert f"self.permits.acquire() at line {line} is given back by no finally" in said
    assert "with self.permits:" in said


@pytest.mark.usefixtures("no_process_left")
def test_one_that_is_given_back_is_no_hang(torchrun: Command, ddpdoctor: Run, script: Script) -> None:
    """A worker that takes its time is at work."""
    done = ddpdoctor("run", "--hang-after", "2", "--", *torchrun, script(TEXT.format(take=GIVEN_BACK)))

    assert done.returncode == 0
    assert "worker process" not in done.stderr
