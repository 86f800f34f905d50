"""Python processes that start warm: forked from one that has imported torch, as a test's torchrun and its ranks.

``python warm.py SOCKET`` serves; ``python warm.py SOCKET FILE [ARG]...`` is a process that runs the file as ``python
FILE ARG...`` does, with its own environment, folder and streams, and ends as that does; under ``ddpdoctor run`` it is
watched. It is no child of who starts it. Scripts that it starts with ``sys.executable`` start warm, too: that is the
program ``python`` beside the socket. WARM_TIMEOUT is the time-out, in seconds, of groups whose script names none.
``-c CODE`` in the place of the file keeps what else is open: so what multiprocessing spawns, and the fork server of
ddpdoctor's jobs, start warm.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType

READY = "ready\n"
MOST = 32  # open files that a process begins with
FREE = 200  # no process has so many open when it begins


def import_torch() -> None:
    """Import what trainings do, and what watches them."""
    import torch._dynamo
    import torch.distributed.run
    import torch.nn.parallel
    import torch.utils.data  # noqa: F401 - as all of these: for the processes

    import ddpdoctor.watch.rank.script  # noqa: F401


def serve(path: str, prepare: Callable[[], None]) -> tuple[dict[str, object], list[int]]:
    """Fork a process for each client, and return in it what it is to run; end with standard input."""
    from ddpdoctor.jobs.forking import in_large_pages, uncollected

    with uncollected():
        prepare()
    in_large_pages()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(64)
    sys.stdout.write(READY)
    sys.stdout.flush()
    while server in select.select([server, sys.stdin], [], [])[0]:  # until whoever started it closes its input
        client, _ = server.accept()
        if os.fork() == 0:
            if request := supervise(client):
                server.close()
                return request
            os._exit(0)
        client.close()
    sys.exit()


def supervise(client: socket.socket) -> tuple[dict[str, object], list[int]] | None:
    """Fork the process itself, and tell its client how it ended; None once it has."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, streams, _, _ = socket.recv_fds(client, 1 << 20, MOST)
    if (process := os.fork()) == 0:
        os.setpgid(0, 0)
        client.close()
        return json.loads(data), streams
    with suppress(PermissionError, ProcessLookupError):  # it has done so by itself, and has gone on
        os.setpgid(process, process)
    for stream in streams:
        os.close(stream)
    threading.Thread(target=end_with, args=(client, process), daemon=True).start()
    with suppress(BrokenPipeError):  # the client was killed
        client.sendall(f"{process}\n".encode())
        client.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n".encode())
    return None


def end_with(client: socket.socket, process: int) -> None:
    """Kill the process, and what it has forked, when its client is gone: whoever started that has killed its group."""
    with suppress(ConnectionResetError):  # it was killed before it read the number of its process
        client.recv(1)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def become(request: tuple[dict[str, object], list[int]]) -> list[str]:
    """Become what the client is; return its arguments."""
    wanted, streams = request
    moved = [fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, FREE) for stream in streams]
    for stream in streams:
        os.close(stream)
    for target, stream in zip(wanted["descriptors"], moved, strict=True):  # type: ignore[call-overload]  # JSON
        os.dup2(stream, target)
        os.close(stream)
    os.environ.clear()
    os.environ.update(wanted["environ"])  # type: ignore[call-overload]  # JSON
    show_environ()
    os.chdir(str(wanted["folder"]))
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    argv: list[str] = wanted["argv"]  # type: ignore[assignment]  # JSON
    return argv


def begin(request: tuple[dict[str, object], list[int]]) -> list[str]:
    """Become what the client is, with torch as one has it that has just imported it; return its arguments."""
    from multiprocessing import spawn

    import torch
    from torch._C._distributed_c10d import set_debug_level_from_env
    from torch.distributed import distributed_c10d

    argv = become(request)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.default_generator.seed()  # another one in each process
    set_debug_level_from_env()  # as importing torch.distributed does
    if seconds := os.environ.get("WARM_TIMEOUT"):
        distributed_c10d.default_pg_timeout = timedelta(seconds=float(seconds))
    sys.executable = str(Path(sys.argv[1]).with_name("python"))
    spawn.set_executable(sys.executable)
    return argv


def show_environ() -> None:
    """Have /proc show the environment as that of a process which was started with it: where a look from outside reads.

    ROOM, a variable of the server, has left the space for it.
    """
    first, last = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47:49])
    text = b"".join(f"{name}={value}\0".encode() for name, value in os.environ.items())
    ctypes.memmove(first, text.ljust(last - first, b"\0")[: last - first], last - first)


def kept_open(argv: list[str]) -> list[int]:
    """List what the process begins with: its streams and, of code, what whoever starts it leaves it besides."""
    found = [0, 1, 2]
    for each in map(int, os.listdir("/proc/self/fd") if argv[0] == "-c" else ()):  # noqa: PTH208 - a client starts fast
        with suppress(OSError):  # the folder itself was open
            found += [each] if each > 2 and os.get_inheritable(each) else []
    return found


def run(path: str, argv: list[str]) -> None:
    """Ask the server for the process, pass signals on to it, and end as it does."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    files = kept_open(argv)
    folder = os.getcwd()  # noqa: PTH109 - a client starts fast
    request = {"argv": argv, "environ": dict(os.environ), "folder": folder, "descriptors": files}
    socket.send_fds(client, [json.dumps(request).encode()], files)
    for each in files[3:]:
        os.close(each)  # whoever waits for its end waits for that of the process
    replies = client.makefile()
    process = int(replies.readline())

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(process, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    code = int(replies.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        run(sys.argv[1], sys.argv[2:])
    sys.argv = begin(serve(sys.argv[1], import_torch))
    if os.environ.get("DDPDOCTOR_WATCH"):  # as sitecustomize does in a process that starts cold
        from ddpdoctor.watch.rank.install import attach

        attach()
    if sys.argv[0] == "-c":
        sys.path[0] = ""
        exec(sys.argv.pop(1))  # noqa: S102 - as Python does
        sys.exit()
    path = os.path.join(os.getcwd(), sys.argv[0])  # noqa: PTH109, PTH118 - as Python does, which keeps "./"
    sys.path[0] = os.path.dirname(path)  # noqa: PTH120 - as above
    runpy.run_path(path, run_name="__main__")  # under no condition: a stack that is read for one has this line
