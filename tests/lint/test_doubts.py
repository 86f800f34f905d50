"""What the source alone does not prove is likely, until something around it does."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.facets import Instrument
from ddpdoctor.lint import LIKELY
from ddpdoctor.lint.files import find
from ddpdoctor.lint.run import Wanted, lint

RULES = tuple(check for check in CHECKS if check.of(Instrument.LINT))
ONE_A_POD = """\
import os

import torch
import torch.distributed as dist
from torchvision import datasets

WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))


def main():
    if dist.is_available() and WORLD_SIZE > 1:
        dist.init_process_group("gloo")
    data = datasets.FashionMNIST("data", train=True, download=True)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    if not os.path.exists("out"):
        os.makedirs("out")
    torch.save(model.module.state_dict(), "out/mnist.pt")
    print(len(data))


main()
"""
TELLS = {
    "train.sh": "torchrun --nproc_per_node=2 \\\n  train.py\n",
    "README.md": "Start `torchrun --standalone --nproc-per-node=2 train.py`.\n",
    "start.py": "import train\n",
}
OF_DISKS = {"DDP650", "DDP851", "DDP853"}


def certain(folder: Path) -> dict[str, bool]:
    """Return whether each of these findings is certain, by its code."""
    told = lint(find((".",), (), folder), Wanted(RULES, confidence=LIKELY)).found
    return {each.check.code: each.is_certain for each in told if each.check.code in OF_DISKS}


@pytest.mark.parametrize("named", [None, *TELLS])
def test_what_ranks_spoil_for_each_other_on_a_disk_is_certain_where_they_are_shown_to_share_one(
    named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that tells no ranks of one host apart can run once in each pod, on a disk of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(ONE_A_POD)
    if named is not None:
        (tmp_path / named).write_text(TELLS[named])

    assert certain(Path()) == dict.fromkeys(OF_DISKS, named is not None)


@pytest.mark.parametrize(
    "line",
    ['    rank = int(os.environ["LOCAL_RANK"])', '    os.environ["MASTER_ADDR"] = "localhost"', "    print('cuda:{}')"],
)
def test_a_program_that_tells_ranks_of_one_host_apart_needs_nothing_beside_it(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranks share the host's disk."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(ONE_A_POD.replace("    data =", f"{line}\n    data ="))

    assert certain(Path()) == dict.fromkeys(OF_DISKS, True)


LOCAL_AS_RANK = """\
import os

import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl", world_size=int(os.environ["WORLD_SIZE"]), rank=rank)
"""


@pytest.mark.parametrize(
    ("command", "is_certain"),
    [
        ("torchrun --standalone --nproc_per_node=2 train.py", False),
        ("torchrun --nproc_per_node 2 --nnodes 1 train.py", False),
        ("torchrun --nproc_per_node 2 --nnodes 2 --node_rank $RANK train.py", True),
        ("torchrun --nproc_per_node 2 other.py", True),
    ],
)
def test_what_is_wrong_on_two_nodes_is_likely_where_all_that_starts_it_starts_one(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_certain: bool
) -> None:
    """A README counts as what starts it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(LOCAL_AS_RANK)
    (tmp_path / "README.md").write_text(f"{command}\n")

    told = lint(find((".",), (), Path()), Wanted(RULES, confidence=LIKELY)).found

    assert [each.is_certain for each in told if each.check.code == "DDP364"] == [is_certain]


UNCALLED = """\
import os

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model):
        self.model = DDP(model, device_ids=[int(os.environ["LOCAL_RANK"])])

    def keep(self, path):
        torch.save(self.model.state_dict(), path)


torch.distributed.init_process_group("nccl")
trainer = Trainer(torch.nn.Linear(2, 2))
# trainer.keep("last.pt")
"""


@pytest.mark.parametrize("caller", [None, "train.py", "more.py"])
def test_what_stands_in_a_function_that_nobody_calls_is_likely(
    caller: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is commented out is none; one in the file, or in one that imports it, is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(UNCALLED.replace("# trainer", "trainer") if caller == "train.py" else UNCALLED)
    if caller == "more.py":
        (tmp_path / caller).write_text("from train import trainer\n\ntrainer.keep('last.pt')\n")
    told = lint(find((".",), (), tmp_path), Wanted(RULES, confidence=LIKELY)).found
    kept = [each for each in told if each.check.code == "DDP801"]
    assert [each.is_certain for each in kept] == [caller is not None]
    left_open = kept[0].finding.ambiguity
    assert left_open is None or left_open.causes[0] == "keep is not called: no harm"
