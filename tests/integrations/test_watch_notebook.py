"""The watch where there is no script: an interactive interpreter, cells of a notebook, ranks that are forked there."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

MODEL = """
import ddpdoctor, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = torch.nn.Linear(8, 2), torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.used(x)

def train(rank, file, ranks):
    dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=ranks)
    model = DDP(Net())
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()

watch = ddpdoctor.install()
"""
HERE = 'train(0, "{folder}/here", 1)\n'
FORKED = 'mp.start_processes(train, ("{folder}/forked", 2), nprocs=2, start_method="fork")\n'
EXPLAINED = "ddpdoctor: DDP501 unused-parameters: 2 parameters got no gradient, so DDP stops: spare.weight, spare.bias"


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("last", [HERE, FORKED], ids=["here", "forked"])
class TestCells:
    """An error is explained where it is shown, and what was typed after it still runs."""

    def test_of_an_interactive_interpreter(self, tmp_path: Path, last: str) -> None:
        """Nothing has a file; the session goes on after the error."""
        typed = MODEL.replace("\n\n", "\n").replace("\nclass", "\n\nclass").replace("\ndef train", "\n\ndef train")
        typed = typed.replace("\nwatch", "\n\nwatch") + last.format(folder=tmp_path) + 'print("went on")\n'
        done = subprocess.run(
            [sys.executable, "-i", "-q"], input=typed, capture_output=True, text=True, check=False, timeout=100
        )

        assert EXPLAINED in done.stderr
        assert "went on" in done.stdout
        assert "the watch failed" not in done.stderr

    @pytest.mark.skipif(find_spec("IPython") is None, reason="needs IPython")
    def test_of_a_notebook(self, tmp_path: Path, last: str) -> None:
        """Each cell is run by IPython, which prints the traceback itself."""
        cells = (MODEL, last.format(folder=tmp_path), 'print("went on")')
        text = (
            "from IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
            f"for cell in {cells!r}:\n    shell.run_cell(cell, store_history=True)\n"
        )
        environ = {"IPYTHONDIR": str(tmp_path / "ipython"), "PATH": "", "HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=100, env=environ
        )

        assert EXPLAINED in done.stdout + done.stderr
        assert "went on" in done.stdout
        assert "the watch failed" not in done.stderr
