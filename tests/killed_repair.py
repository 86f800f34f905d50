"""Repairs checkpoints in forked processes that die by SIGKILL; test_repair_kill.py asks it in lines of JSON.

It does not import torch, so that a fork takes a millisecond.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

PAGE = os.sysconf("SC_PAGE_SIZE")
WRITES = ("write", "pwrite", "writev", "pwritev", "copy_file_range", "sendfile")
CHANGES = (
    *WRITES, "chmod", "close", "fchmod", "fdatasync", "fsync", "ftruncate", "link", "mkdir", "open", "posix_fallocate",
    "remove", "rename", "replace", "rmdir", "setxattr", "symlink", "truncate", "unlink", "utime",
)  # fmt: skip
OF_FILES = {"flush", "truncate", "write", "writelines"}  # methods of what open() gives
IN_MEMORY = {"BytesIO", "StringIO"}
TRUE_WRITE, TRUE_LSEEK = os.write, os.lseek

Point = tuple[int, str, int]  # number of the call, "before" or "after" or "within" it, bytes that it still writes


def die() -> NoReturn:
    """Die at once: nothing is unwound, flushed or closed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL has come back")


class Calls:
    """Stands in front of the functions of os that change files: lists the points of a run, or dies at one."""

    def __init__(self, death: Point | None) -> None:
        """Take the point to die at; None to list them all."""
        self.points: list[Point] = []
        self.names: list[str] = []
        self._death = death
        self._number = 0

    def watch(self) -> None:
        """Begin."""
        for name in CHANGES:
            if hasattr(os, name):
                setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self._number += 1
            number = self._number
            self.names.append(name)
            self.points += [(number, "before", 0), *((number, "within", cut) for cut in cuts(name, args))]
            if self._death and self._death[0] == number and self._death[1] != "after":
                if self._death[1] == "within":
                    real(*shortened(name, args, self._death[2]), **named)
                die()
            result = real(*args, **named)
            self.points.append((number, "after", 0))
            if self._death and self._death[0] == number:
                die()
            return result

        return call


def cuts(name: str, args: tuple[Any, ...]) -> Iterable[int]:
    """Return after how many bytes SIGKILL may end a write: the kernel looks for signals between pages."""
    match name, args:
        case "write", (fd, data):
            length, at = memoryview(data).nbytes, position(fd)
        case "pwrite", (_, data, int(at)):
            length = memoryview(data).nbytes
        case "writev", (fd, parts):
            length, at = sum(memoryview(part).nbytes for part in parts), position(fd)
        case "pwritev", (_, parts, int(at), *_):
            length = sum(memoryview(part).nbytes for part in parts)
        case "copy_file_range", (_, _, int(length), *_):
            at = 0
        case "sendfile", (_, _, _, int(length), *_):
            at = 0
        case _:
            return ()
    inside = range((at // PAGE + 1) * PAGE - at, length, PAGE)
    return sorted({inside[0], inside[len(inside) // 2], inside[-1]}) if inside else ()


def position(fd: int) -> int:
    """Return where a file stands; 0 for what is no file."""
    try:
        return TRUE_LSEEK(fd, 0, os.SEEK_CUR)
    except OSError:
        return 0


def shortened(name: str, args: tuple[Any, ...], length: int) -> tuple[Any, ...]:
    """Return the arguments of the same call for its first bytes only."""
    match name:
        case "write" | "pwrite":
            return (args[0], memoryview(args[1]).cast("B")[:length], *args[2:])
        case "writev" | "pwritev":
            return (args[0], [b"".join(bytes(part) for part in args[1])[:length]], *args[2:])
        case "copy_file_range":
            return (*args[:2], length, *args[3:])
        case _:
            return (*args[:3], length, *args[4:])


class Profile:
    """Watches each call of C that may change a file, methods of files too, however it is imported or reached."""

    def __init__(self, death: int | None) -> None:
        """Take the number of the event to die at; None to count them."""
        self.count = 0
        self._death = death

    def watch(self) -> None:
        """Begin."""
        sys.setprofile(self._event)

    def _event(self, _: FrameType, event: str, function: Any) -> None:
        if event not in {"c_call", "c_return"} or not changes_files(function):
            return
        self.count += 1
        if self.count == self._death:
            die()


def changes_files(function: Any) -> bool:
    """Whether a function of C may change a file."""
    name = getattr(function, "__name__", "")
    owner = getattr(function, "__self__", None)
    if getattr(function, "__module__", None) == "posix":
        return name in CHANGES
    if name == "open":
        return getattr(function, "__module__", None) in {"io", "_io"}
    of_file = type(owner).__module__ == "_io" and type(owner).__name__ not in IN_MEMORY
    return (of_file or type(owner).__module__ == "mmap") and name in OF_FILES | {"close"}


def act(request: dict[str, Any]) -> int:
    """Do what is asked for."""
    from ddpdoctor import checkpoint

    if request["do"] == "undo":
        checkpoint.undo(request["path"])
        return 0
    return int(checkpoint.repair(request["path"], request.get("output"), **request["options"]).changed)


def child(request: dict[str, Any], pipe: int) -> NoReturn:
    """Do it, dying where that is asked for; write what came of it into the pipe."""
    from ddpdoctor import BadTarget
    from ddpdoctor.checkpoint.rename import files

    if request.get("named"):
        vars(files)["_nameless"] = lambda _: None
    how, death = request.get("die", ["at", None])
    calls, profile = (
        Calls(tuple(death) if how == "call" and death else None),
        Profile(death if how == "event" else None),
    )
    if how == "call":
        calls.watch()
    elif how == "event":
        profile.watch()
    started = time.perf_counter()
    reply: dict[str, Any] = {}
    try:
        reply["changed"] = act(request)
    except BadTarget as exc:
        reply["refused"] = str(exc)
    sys.setprofile(None)
    reply.update(seconds=time.perf_counter() - started, points=calls.points, names=calls.names, events=profile.count)
    data = json.dumps(reply).encode()
    while data:
        data = data[TRUE_WRITE(pipe, data) :]
    os._exit(0)


def forked(request: dict[str, Any]) -> dict[str, Any]:
    """Do it in a fork; kill that after the delay that is asked for, if one is."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            child(request, writing)
        finally:  # an exception of the tool itself: it is printed, and seen as no reply
            sys.excepthook(*sys.exc_info())
            os._exit(70)
    os.close(writing)
    how, delay = request.get("die", ["", None])
    if how == "delay":
        until = time.perf_counter() + delay
        while time.perf_counter() < until:
            pass  # a sleep is not exact to the microsecond
        os.kill(pid, signal.SIGKILL)  # it is a zombie at most: nobody has waited for it
    with open(reading, "rb") as pipe:  # noqa: PTH123 - a descriptor
        data = pipe.read()
    status = os.waitpid(pid, 0)[1]
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if killed or os.waitstatus_to_exitcode(status):
        return {"killed": killed, "failed": 0 if killed else os.waitstatus_to_exitcode(status)}
    return {"killed": False, "failed": 0, **json.loads(data)}


def remove(path: Path) -> None:
    """Remove a file or a directory."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def main() -> None:
    """Answer until the standard input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "warm":  # here, not in a fork: what it imports stays imported
            act({**request, "do": "repair"})
            remove(Path(request["output"]))
            reply: dict[str, Any] = {"torch": "torch" in sys.modules}
        else:
            reply = forked(request)
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
