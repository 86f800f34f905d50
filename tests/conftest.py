"""What several tests share: one warm pool, one look at the host, the loaded checks, and a command line to run."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import settings

from ddpdoctor.probe.facts import Facts, gather
from ddpdoctor.probe.jobs import Jobs
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.check import Check

settings.register_profile("here", deadline=None)  # machines are noisy: a slow example is no failure
settings.load_profile("here")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).parents[1]
MARK = "DDPDOCTOR_TEST"  # a variable that a test's processes inherit


@pytest.fixture(scope="session")
def jobs() -> Iterator[Jobs]:
    """Give a pool that runs two ranks."""
    with Jobs(2, os.environ) as pool:
        yield pool


@pytest.fixture(scope="session")
def facts() -> Facts:
    """Give this host's facts."""
    return gather()


@pytest.fixture(scope="session")
def checks() -> dict[str, Check]:
    """Give the checks by their slug."""
    return {check.slug: check for check in load_checks()}


@pytest.fixture
def ddpdoctor() -> Run:
    """Give a function that runs the command line in a process of its own."""

    def run(*args: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ddpdoctor", *args],
            capture_output=True,
            text=True,
            cwd=cwd,
            env={**os.environ, **environ},
            timeout=100,
            check=False,
        )

    return run


def left_behind(mark: str) -> list[str]:
    """Name the running processes that inherited a variable with this value."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(" ".join(process.cmdline()))
    return found


@pytest.fixture
def no_process_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test if a process that it started, or that such a one started, runs after it."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    yield
    assert left_behind(mark) == []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs more GPUs than there are, with the reason."""
    there = len(gather().gpus.devices)
    for item in items:
        if (marker := item.get_closest_marker("gpu")) and there < marker.args[0]:
            item.add_marker(pytest.mark.skip(reason=f"needs {marker.args[0]} NVIDIA GPUs, found {there}"))


@pytest.fixture
def free_port() -> Callable[[], str]:
    """Give a function that gives a port that nobody listens on."""

    def find() -> str:
        port = random.randrange(20_000, 30_000)  # noqa: S311 - any port below those of connections
        with socket.create_server(("127.0.0.1", port)):
            return str(port)

    return find
