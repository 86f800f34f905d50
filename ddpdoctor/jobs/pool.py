"""The warm job pool, seen from the checks: real ranks in fresh processes, for about a tenth of a second."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ddpdoctor.facets import NotRun
from ddpdoctor.findings import OUT_OF_TIME, TIME
from ddpdoctor.host.versions import TORCH_ADVICE, has_torch
from ddpdoctor.jobs.environ import loopback_name, server_environ
from ddpdoctor.jobs.job import Job, Ready, Twin

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ddpdoctor.jobs.outcome import Outcome

START = (
    "import sys; sys.path[:] = {path!r}; from pathlib import Path; "
    "from ddpdoctor.jobs.server import main; main({descriptor}, Path({home!r}))"
)
START_LIMIT = 90.0  # seconds for importing torch: a cold network file system takes that long


class ServerLostError(RuntimeError):
    """The fork server ended by itself."""


class Jobs:
    """Starts a fork server at once, in the background, and runs jobs on it; a context manager.

    ``world_size`` is how many ranks a job has unless it says otherwise. ``ends_at`` (``time.monotonic``
    seconds) bounds every job.
    """

    def __init__(self, world_size: int, environ: Mapping[str, str], ends_at: float = float("inf")) -> None:
        """Start the server; it imports torch while the caller goes on."""
        self.world_size = world_size
        self._environ = dict(environ)
        self._loopback = loopback_name()
        self._ends_at = ends_at
        self._ready: Ready | None = None
        # The server removes it when its client dies; the client, when the server does.
        self._home = tempfile.mkdtemp(prefix="ddpdoctor-")
        self._connection, theirs = Pipe()
        descriptor = theirs.fileno()
        self._process: subprocess.Popen[bytes] | psutil.Process = subprocess.Popen(
            [sys.executable, "-c", START.format(path=sys.path, descriptor=descriptor, home=self._home)],
            env=server_environ(environ, self._loopback),
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()

    def twin(self, *modules: str) -> Jobs:
        """Return another pool, whose server is forked from this one's; this one runs no jobs from then on.

        ``modules`` are imported before, for the ranks of all twins.

        Raises:
            NotRun: the time ran out.
            ServerLostError: the fork server is gone, or could not import torch.
        """
        twin = copy.copy(self)
        twin._part_from(self._connection, self._process.pid, modules)  # noqa: SLF001 - its own class
        return twin

    def with_hash_seed(self, seed: int) -> Jobs | None:
        """Return another pool, whose ranks hash texts with this seed; None where the user has set one for all ranks."""
        if self._environ.get("PYTHONHASHSEED", "random") != "random":
            return None
        return Jobs(self.world_size, {**self._environ, "PYTHONHASHSEED": str(seed)}, self._ends_at)

    def __enter__(self) -> Jobs:  # noqa: PYI034 - typing.Self is of Python 3.11
        """Return the pool."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the server and everything that it started."""
        self.close()

    def problem(self) -> str:
        """Wait for the server; return the traceback of its ``import torch``, empty when that worked.

        Raises:
            NotRun: the time ran out.
        """
        if self._ready is None:
            self._ready = self._receive(START_LIMIT, "importing torch")
        return self._ready.problem

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        ranks: int | None = None,
        backend: str | None = "gloo",
        deadline: float = 20.0,
        environ: Mapping[str, str | None] | None = None,
    ) -> tuple[Outcome, ...]:
        """Call ``function(*args)`` on each rank; return the outcomes in rank order.

        The function is one at the top of a module, its value plain data. With a backend, the default process
        group is up when it is called (gloo over loopback, file store).

        Raises:
            NotRun: torch cannot be imported, loopback is down, or the run's time is used up.
            ServerLostError: the fork server is gone.
        """
        if backend == "gloo" and self._loopback is None:
            raise NotRun("the loopback interface is down: ranks of this host cannot meet")
        payload = pickle.dumps((function, args))
        return self._run(ranks, deadline, environ, payload=payload, backend=backend, modules=_own(function.__module__))

    def run_script(
        self,
        path: Path | str,
        *argv: str,
        ranks: int | None = None,
        deadline: float = 20.0,
        environ: Mapping[str, str | None] | None = None,
        around: str = "",
    ) -> tuple[Outcome, ...]:
        """Run a script as ``__main__`` on each rank, with the variables that torchrun sets.

        ``around`` (``module:name``) makes a context manager that each rank runs the script in.

        Raises:
            NotRun: torch cannot be imported, or the run's time is used up.
            ServerLostError: the fork server is gone.
        """
        modules = _own(around.partition(":")[0])
        return self._run(ranks, deadline, environ, argv=(str(path), *argv), around=around, modules=modules)

    def close(self) -> None:
        """End the server and everything that it started; takes at most a second or so."""
        self._connection.close()
        if self._ready is not None:  # before that, it runs nothing that could be left behind
            with suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
                self._process.wait(1.5)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    def _part_from(self, server: Connection, pid: int, modules: tuple[str, ...]) -> None:
        """Take a server of its own, which that one forks."""
        self._home = tempfile.mkdtemp(prefix="ddpdoctor-")
        self._connection, theirs = Pipe()
        try:
            server.send(Twin(self._home, modules))
            send_handle(server, theirs.fileno(), pid)
        except OSError as exc:
            raise ServerLostError("the fork server is gone") from exc
        finally:
            theirs.close()
        ready: Ready = self._receive(START_LIMIT, "forking a server")
        self._ready, self._process = ready, psutil.Process(ready.pid)

    def _run(
        self, ranks: int | None, deadline: float, environ: Mapping[str, str | None] | None, **rest: Any
    ) -> tuple[Outcome, ...]:
        if problem := self.problem():
            last = problem.strip().splitlines()[-1]
            raise NotRun(f"torch cannot be imported: {last}" if has_torch() else TORCH_ADVICE)
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise NotRun(OUT_OF_TIME, wants=TIME)
        job = Job(ranks or self.world_size, min(deadline, left), dict(environ or {}), **rest)
        try:
            self._connection.send(job)
        except OSError as exc:
            raise ServerLostError("the fork server is gone") from exc
        outcomes: list[Outcome] = self._receive(job.deadline + 10, "a job")
        return tuple(outcomes)

    def _receive(self, limit: float, what: str) -> Any:
        limit = max(0.0, min(limit, self._ends_at - time.monotonic() + 5))
        try:
            if self._connection.poll(limit):
                return self._connection.recv()
        except (EOFError, OSError) as exc:
            raise ServerLostError(f"the fork server ended during {what}") from exc
        if time.monotonic() >= self._ends_at:
            raise NotRun(OUT_OF_TIME, wants=TIME)
        raise NotRun(f"{what} took longer than {limit:.0f} s")


def _own(module: str) -> tuple[str, ...]:
    """Return a module if it is of this package: those of others belong in the ranks, whatever they do."""
    return (module,) if module.startswith("ddpdoctor.") else ()
