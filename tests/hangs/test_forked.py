"""Workers of a loader that were forked while a lock was taken: nobody will wake them, and no rank communicates."""

from __future__ import annotations

import re

import pytest
from helpers import COLD_TORCHRUN, Command, Run, Script

TEXT = """
import threading, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

class Words(Dataset):
    def __init__(self):
        self.lock = threading.Lock()
        threading.Thread(target=self.refresh, daemon=True).start()
    def refresh(self):
        while True:
            with self.lock:
                time.sleep(0.2)
            time.sleep(0.001)
    def __len__(self):
        return 16
    def __getitem__(self, index):
        with self.lock:  # here
            return torch.ones(4)

class Slow(Words):
    def __init__(self):
        self.lock = threading.Lock()
    def __getitem__(self, index):
        time.sleep(1.5)
        return torch.ones(4)

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(4, 1))
for batch in DataLoader({}(), 4, num_workers=2, multiprocessing_context="fork"):
    model(batch).mean().backward()
dist.destroy_process_group()
"""


@pytest.mark.usefixtures("no_process_left")
def test_the_lock_is_named_with_its_line(ddpdoctor: Run, script: Script) -> None:
    """Where a rank stands for so long; the fix is no spawn alone, which a lock in the data set forbids."""
    path = script(TEXT.format("Words"))  # not under warm ranks, which the workers that hang would outlive
    done = ddpdoctor("run", "--hang-after", "4", "--on-finding", "raise", "--", *COLD_TORCHRUN, path)
    said = " ".join(done.stderr.split())
    line = next(number for number, each in enumerate(TEXT.splitlines(), 1) if "# here" in each)

    assert re.search(rf"worker process \d+ stands still at \S+:{line}, and waits for self.lock, which was taken", said)
    assert "worker_init_fn" in said


@pytest.mark.usefixtures("no_process_left")
def test_slow_workers_are_no_hang(torchrun: Command, ddpdoctor: Run, script: Script) -> None:
    """A rank waits for its first batch longer than --hang-after, and no line is said."""
    done = ddpdoctor("run", "--hang-after", "3", "--", *torchrun, script(TEXT.format("Slow")))

    assert done.returncode == 0
    assert "DDP720" not in done.stderr, done.stderr
