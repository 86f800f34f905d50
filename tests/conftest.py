"""What several tests share: one warm pool, one look at the host, the loaded checks, and a command line to run."""

from __future__ import annotations

import os
import random
import socket as sockets
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from helpers import CHECKS, PATIENCE, TORCHRUN, Command, Port, Run, Script
from hypothesis import settings
from processes import PREFIX, WarmProcesses, starts_warm, warm_processes

from ddpdoctor.host.facts import Facts, gather
from ddpdoctor.pytest import MARK as RANKS, pool_of

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.jobs.pool import Jobs

# Machines are noisy: a slow example is no failure. A night can have more: --hypothesis-profile=thorough. A test that
# needs more examples than others takes a multiple of the profile's.
settings.register_profile("here", deadline=None, max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("here")

MARK = "DDPDOCTOR_TEST"  # a variable that a test's processes inherit


@pytest.fixture(scope="session")
def jobs(pytestconfig: pytest.Config) -> Jobs:
    """Return the pool of two ranks that the tests marked with ``ranks`` run on, too: our plugin ends it."""
    return pool_of(pytestconfig)


@pytest.fixture(scope="session")
def facts() -> Facts:
    """Return this host's facts."""
    return gather()


@pytest.fixture(scope="session")
def checks() -> dict[str, Check]:
    """Return the checks by their slug."""
    return {check.slug: check for check in CHECKS}


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmProcesses]:
    """Yield what starts processes that have imported already what they need."""
    with warm_processes() as processes:
        yield processes


@pytest.fixture
def ddpdoctor(free_port: Port, warm: WarmProcesses) -> Run:
    """Return a function that runs the command line in a process of its own; what it says is not wrapped.

    PORT is for ranks that meet there.
    """

    def run(*args: str, cwd: Path | None = None, **given: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "COLUMNS": "1000", "PORT": free_port(), **given}
        if starts_warm(given):
            if args[:1] in {("bench",), ("check",), ("selftest",)}:
                warm.import_torch()  # for their jobs
            done = warm.ddpdoctor(*args, cwd=cwd, environ=environ, timeout=PATIENCE)
            return subprocess.CompletedProcess(args, *done)
        command = [sys.executable, "-m", "ddpdoctor", *args]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=cwd, env=environ, timeout=PATIENCE, check=False
        )

    return run


@pytest.fixture(scope="session")
def python(warm: WarmProcesses) -> str:
    """Return a program that runs a script as Python does, in a process that has imported torch: see ``warm.py``."""
    warm.import_torch()
    return str(warm.folder / "python")


@pytest.fixture(scope="session")
def torchrun(python: str) -> Command:
    """Return the command of a warm torchrun, which starts two warm ranks on this host."""
    return (python, str(TORCHRUN), "--standalone", "--nproc_per_node=2")


ENDING = 60
"""Seconds that processes have which were killed or told to end: three hand that on, one after another, and the one of
them that is torchrun gives its ranks 30 before it kills them."""


def left_behind(mark: str) -> list[str]:
    """End the running processes that inherited a variable with this value, or that the warm server has started.

    Their commands are returned. They do not live on, lest every test that follows be blamed for them. One that is about
    to end has its time: what watches over a warm process ends a moment after it.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_warm = PREFIX in " ".join(process.cmdline()) and process.ppid() != os.getpid()
            if process.pid != os.getpid() and (is_warm or process.environ().get(MARK) == mark):
                found.append(process)
    _, alive = psutil.wait_procs(found, timeout=ENDING)
    commands = []
    for process in alive:
        with suppress(psutil.Error):
            commands.append(" ".join(process.cmdline()))
            process.kill()
    return commands


@pytest.fixture
def no_process_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test if a process that it started, or that such a one started, runs after it."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    yield
    assert left_behind(mark) == []


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Return a function that writes a script and gives its path."""

    def write(text: str) -> str:
        (tmp_path / "train.py").write_text(text)
        return str(tmp_path / "train.py")

    return write


STARTERS = {"hosts", "jobs", "pool", "python", "torchrun", "no_process_left"}
"""Fixtures of tests that start ranks, or processes that import torch, or work on several hosts."""
LONG = (
    "test_contributing", "test_explain_real", "test_jobs", "test_repair_", "test_slurm", "test_watch_callbacks",
    "test_watch_notebook", "test_watch_stacks",
)  # fmt: skip
"""Files whose tests do so by themselves, or take their time otherwise."""


LONGEST = (
    "test_run", "test_selftest", "test_watch_errors", "test_mutants", "test_hosts", "test_repair_kill",
    "test_watch_frameworks", "test_cli", "test_explain_broken_cases", "test_contributing", "test_explain_real",
    "test_repair_refuses", "test_repair_frameworks", "test_watch_neutral", "test_lint", "test_registry",
    "test_watch_interrupt", "test_forked", "test_corpus", "test_watch_joining", "test_performance", "test_log_patterns",
    "test_watch_alone", "test_documents", "test_watch_model", "test_hosts_in_training", "test_checkpoint_reader",
    "test_stuck", "test_bisect",
)  # fmt: skip
"""Files that take a minute and a half and more where eight run at a time, in the order in which they begin: what comes
last is to be short."""


def is_slow(item: pytest.Item) -> bool:
    """Whether a test starts ranks, or takes its time otherwise."""
    starts = item.get_closest_marker(RANKS) or STARTERS & set(getattr(item, "fixturenames", ()))
    return bool(starts) or item.path.stem.startswith(LONG)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; mark what is fast; skip what needs more GPUs than there are.

    Of what is slow, the first test of each file counts as fast. What is run at night has as much time as the machine
    makes it take.
    """
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
    sampled = set()
    there = len(gather().gpus.devices)
    for item in items:
        if not item.get_closest_marker("zoo") and (not is_slow(item) or item.path not in sampled):
            item.add_marker(pytest.mark.fast)
            if is_slow(item):
                sampled.add(item.path)
        if item.get_closest_marker("nightly") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(2.4 * PATIENCE))
        if (marker := item.get_closest_marker("gpu")) and there < marker.args[0]:
            item.add_marker(pytest.mark.skip(reason=f"needs {marker.args[0]} NVIDIA GPUs, found {there}"))


@pytest.fixture
def free_port() -> Port:
    """Return a function that gives a port that nobody listens on."""

    def find() -> str:
        port = random.randrange(20_000, 30_000)  # noqa: S311 - any port below those of connections
        with sockets.create_server(("127.0.0.1", port)):
            return str(port)

    return find
