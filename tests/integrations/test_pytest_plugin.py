"""The pytest plugin: marked tests on real ranks, each in its way, in one run of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

TESTS = '''
import os, threading
import pytest
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

class Own:
    number = 3

@pytest.fixture
def own():
    return Own()

@pytest.fixture
def lock():
    return threading.Lock()

def test_not_marked():
    assert "RANK" not in os.environ

@pytest.mark.ranks(2)
@pytest.mark.parametrize("number", [1, 2])
def test_passes(number, own, tmp_path):
    """Real ranks, a group, arguments of all kinds."""
    total = torch.tensor([float(number)])
    dist.all_reduce(total)
    assert total.item() == 2 * number
    assert (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])) == (dist.get_rank(), 2)
    assert own.number == 3 and tmp_path.is_dir()

class TestThose:
    @pytest.mark.ranks(3)
    def test_of_a_class(self):
        assert dist.get_world_size() == 3

@pytest.mark.ranks(2, backend=None)
def test_without_a_group():
    assert not dist.is_initialized()

@pytest.mark.ranks(2)
def test_asserts():
    there = [dist.get_rank(), 7]
    assert there == [0, 7]

@pytest.mark.ranks(2, timeout=6)
def test_hangs():
    if dist.get_rank() == 0:
        dist.barrier()
    else:
        import threading
        threading.Event().wait()

def train(model):
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(4):
        optimizer.zero_grad()
        yield wrapped
        optimizer.step()

@pytest.mark.ranks(2)
def test_silent():
    for wrapped in train(nn.Linear(4, 1)):
        wrapped.module(torch.randn(8, 4)).square().mean().backward()

@pytest.mark.ranks(2, watch=False)
def test_silent_and_not_watched():
    for wrapped in train(nn.Linear(4, 1)):
        wrapped.module(torch.randn(8, 4)).square().mean().backward()

@pytest.mark.ranks(2)
def test_healthy():
    for wrapped in train(nn.Linear(4, 1)):
        wrapped(torch.randn(8, 4)).square().mean().backward()

@pytest.mark.ranks(2)
def test_skips():
    pytest.skip("not today")

@pytest.mark.ranks(2)
def test_dies():
    if dist.get_rank() == 1:
        os._exit(3)

@pytest.mark.ranks(2)
def test_cannot_be_sent(lock):
    pass

@pytest.mark.ranks("two")
def test_wrong_mark():
    pass
'''
PASSED = {
    "test_not_marked", "test_passes[1]", "test_passes[2]", "test_of_a_class", "test_without_a_group", "test_healthy",
    "test_silent_and_not_watched",
}  # fmt: skip
FAILED = {
    "test_asserts": ("rank 1:\n", "test_ranks.py:", "assert [1, 7] == [0, 7]"),
    "test_hangs": ("error DDP", "test_ranks.py:"),
    "test_silent": ("DDP560 forward-bypasses-ddp",),
    "test_dies": ("rank 1 ended with exit status 3",),
    "test_cannot_be_sent": ("the fixture 'lock', a lock, cannot be sent there",),
    "test_wrong_mark": ("ranks('two')",),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Return for each test what became of it, and what was said."""
    folder: Path = tmp_path_factory.mktemp("plugin")
    (folder / "test_ranks.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    options = ("-p", "ddpdoctor.pytest", "-p", "no:cacheprovider", "--junit-xml=report.xml")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    cases = ET.parse(folder / "report.xml").iter("testcase")  # noqa: S314 - of the run above
    return {str(case.get("name")): _outcome(case) for case in cases}


def _outcome(case: ET.Element) -> tuple[str, str]:
    for kind in ("failure", "error", "skipped"):
        if (found := case.find(kind)) is not None:
            return kind, f"{found.get('message')}\n{found.text}"
    return "passed", ""


@pytest.mark.usefixtures("no_process_left")
def test_tests_on_ranks_end_as_their_ranks_do(outcomes: dict[str, tuple[str, str]]) -> None:
    """They pass, fail and skip; a hang and a silent fault are failures with the verdict of the watch."""
    assert {name for name, (kind, _) in outcomes.items() if kind == "passed"} == PASSED
    assert {name for name, (kind, _) in outcomes.items() if kind == "failure"} == set(FAILED)
    assert outcomes["test_skips"][0] == "skipped"
    assert "not today" in outcomes["test_skips"][1]


@pytest.mark.parametrize("name", FAILED)
def test_a_failure_says_what_its_ranks_said(name: str, outcomes: dict[str, tuple[str, str]]) -> None:
    """The rank, the line, what was compared, and what the watch found."""
    for text in FAILED[name]:
        assert text in outcomes[name][1]
