"""Processes of tests that start warm: from ``warm.py``, with torch, and from ``warm_command.py``, the command line."""

from __future__ import annotations

import json
import os
import socket as sockets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

TESTS = Path(__file__).parent
PREFIX = f"warm-{os.getpid()}-"  # stands in the command of each process that this one's warm servers have started
PROGRAMS = {
    "python": """\
[ "$1" = -u ] && shift
[ -S {folder}/socket ] || exec {python} "$@"
case "$1" in
    -c) case "$2" in
            *ddpdoctor.jobs.server* | *multiprocessing.spawn*) exec {python} -S {warm} {folder}/socket "$@" ;;
        esac
        exec {python} "$@" ;;
    -*) exec {python} "$@" ;;  # a module: cold
    *) exec {python} -S {warm} {folder}/socket "$@" ;;
esac
""",
    "ddpdoctor": 'exec {python} -S {warm} {folder}/commands "$@"\n',
    "torchrun": 'exec {folder}/python {beside}/torchrun "$@"\n',
    "py-spy": 'exec {beside}/py-spy "$@"\n',  # looked for beside Python
}
COLD = ("LANG", "LC_", "PYTHON", "TZ")  # variables that Python looks at when it starts


class WarmProcesses:
    """The servers, started when they are first wanted, and the folder of the programs whose processes they start.

    ``python`` and ``torchrun`` are cold before ``import_torch``, ``ddpdoctor`` is not there before ``import_commands``.
    ``stack`` ends the servers.
    """

    def __init__(self, stack: ExitStack) -> None:
        """Write the programs; the servers' environment is that of now, and not of the test that wants them first."""
        self._environ = {**os.environ, "ROOM": "x" * 16_384}
        self._stack = stack
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX)))
        known = {"folder": self.folder, "python": sys.executable, "beside": Path(sys.executable).parent}
        for name, text in PROGRAMS.items():
            program = self.folder / name
            program.write_text("#!/bin/sh\n" + text.format(warm=TESTS / "warm.py", **known))
            program.chmod(0o755)
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._ready: set[str] = set()

    def import_torch(self) -> None:
        """Have ``python`` and ``torchrun``, and the jobs of commands, start warm."""
        self._serve("warm.py", "socket", OMP_NUM_THREADS="1")

    def import_commands(self) -> None:
        """Have ``ddpdoctor`` start warm."""
        self._serve("warm_command.py", "commands")

    def ddpdoctor(self, *args: str, cwd: Path | None, environ: dict[str, str], timeout: float) -> tuple[int, str, str]:
        """Run the command line; return its status, its output and its messages."""
        self.import_commands()
        wanted = {"argv": args, "environ": environ, "folder": str(cwd or Path.cwd()), "descriptors": [0, 1, 2]}
        with sockets.socket(sockets.AF_UNIX) as client, ThreadPoolExecutor(2) as readers, ExitStack() as stack:
            client.connect(str(self.folder / "commands"))
            client.settimeout(timeout)
            texts: list[Future[str]] = []
            with Path(os.devnull).open() as nothing, ExitStack() as theirs:
                streams = [nothing.fileno()]
                for _ in ("output", "messages"):
                    reading, writing = os.pipe()
                    texts.append(readers.submit(stack.enter_context(os.fdopen(reading, encoding="utf-8")).read))
                    streams.append(theirs.enter_context(os.fdopen(writing, "wb", buffering=0)).fileno())
                sockets.send_fds(client, [json.dumps(wanted).encode()], streams)
            replies = client.makefile()
            replies.readline()  # its number
            status = int(replies.readline())
            return status, texts[0].result(), texts[1].result()

    def _serve(self, program: str, socket: str, **environ: str) -> None:
        """Start a server, once, and wait for it; where a test has had no time for that, the next one waits on."""
        if program in self._ready:
            return
        if program not in self._servers:
            command = (sys.executable, TESTS / program, self.folder / socket)
            self._servers[program] = self._stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**self._environ, **environ}
                )
            )
        said = self._servers[program].stdout
        assert said is not None
        assert said.readline() == b"ready\n"
        self._ready.add(program)


@contextmanager
def warm_processes() -> Iterator[WarmProcesses]:
    """Yield them; their servers end with the block."""
    with ExitStack() as stack:
        yield WarmProcesses(stack)


def starts_warm(environ: dict[str, str]) -> bool:
    """Whether a process with these variables besides ours is as one that starts cold."""
    return not any(name.startswith(COLD) for name in environ)
