"""The Python stacks of other processes, read by py-spy from their memory: no process is stopped, and none helps.

``--nonblocking`` reads while the process runs, which one that stands does not notice. py-spy would otherwise stop it by
ptrace, which ends some system calls of native code early (signal(7), "Interruption of system calls by stop signals").
Of one that runs, a look fails now and then, and is repeated.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ddpdoctor.host.stack import Frame
from ddpdoctor.stuck.looks.builds import built_in
from ddpdoctor.stuck.looks.files import named_here, root_of
from ddpdoctor.stuck.looks.gil import GilHeld, gil_held
from ddpdoctor.stuck.looks.raised import raised
from ddpdoctor.stuck.looks.refusals import AGAIN, INSTALL, RIGHTS, advice
from ddpdoctor.watch.monitor.seen.threads import SERVE
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

PATIENCE = 10.0  # seconds for one look
TRIES = 5  # of reading a process that runs
AT_ONCE = 8
TORCH, THREADS, JOIN, LAST = "/torch/", "/threading.py", "join", "_shutdown"  # py-spy names methods with their class
RESULT = ("/concurrent/futures/_base.py", "result")
ADDRESS = re.compile(r"0x[0-9a-f]+(?=>$)")


class CannotStartError(Exception):
    """The system does not start py-spy."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The thread of a process that trains: its frames, innermost first, and by frame its integer variables.

    ``others`` are the frames of the user's code in other threads, innermost first, by the thread's name. ``ends`` tells
    that the main thread, which is not this one, has run the script to its end and waits for the others. ``threads`` are
    the kernel's numbers of the other ones. ``build`` is the folder of an extension that torch builds, where it waits
    for the lock of that. ``alone``: no other thread of Python's can run anything of the script's. ``gil`` is another
    thread that has the GIL. ``raised`` is an exception under way, and the frame that it came out of.
    """

    frames: tuple[Frame, ...] = ()
    values: tuple[tuple[tuple[str, int], ...], ...] = ()
    others: tuple[tuple[str, tuple[Frame, ...]], ...] = field(default=(), compare=False)
    ends: bool = False
    threads: tuple[int, ...] = field(default=(), compare=False)
    build: str = ""
    alone: bool = field(default=False, compare=False)
    gil: GilHeld | None = field(default=None, compare=False)
    raised: tuple[str, Frame] | None = field(default=None, compare=False)

    @property
    def joins(self) -> bool:
        """Whether the thread waits for the end of another one."""
        return any(each.function.endswith(JOIN) and each.file.endswith(THREADS) for each in self.frames)


@dataclass(frozen=True, slots=True)
class Stacks:
    """By pid what was read; ``refused`` says why others were not, in a line with what to do about it."""

    read: dict[int, Stack]
    refused: str = ""


def py_spy() -> str | None:
    """Return the path of the program; None where it is not installed.

    It lies beside this interpreter, on the PATH, or where its wheel says: `pip install --user` takes ~/.local/bin,
    which a shell without a login (ssh HOST COMMAND) has not on its PATH.
    """
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy") or _installed()


def _installed() -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        for each in importlib.metadata.distribution("py-spy").files or ():
            path = Path(str(each.locate()))
            if each.name == "py-spy" and path.is_file() and os.access(path, os.X_OK):
                return str(path.resolve())
    return None


def stacks(pids: Iterable[int]) -> Stacks:
    """Look at the main threads of processes; those that are gone, or are no Python, are left out."""
    program = py_spy()
    if program is None:
        return Stacks({}, INSTALL)
    pids = tuple(pids)
    root, reading = root_of(pids), Lock()

    def read(text: str, pid: int) -> Stack | None:
        with reading:  # Python 3.11 counts the depth of the trees of all threads that parse sources as one
            return parse(text, pid, root)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            said = dict(zip(pids, pool.map(lambda pid: _ask(program, pid, read), pids), strict=True))
        except CannotStartError as exc:
            return Stacks({}, f"{exc}, so no Python line is known: {AGAIN}")
    found = {pid: each for pid, each in said.items() if isinstance(each, Stack)}
    complaints = [each for each in said.values() if isinstance(each, str)]
    denied = any(right in each.lower() for each in complaints for right in RIGHTS)
    return Stacks(found, advice() if denied and not found else "")


def _ask(program: str, pid: int, read: Callable[[str, int], Stack | None]) -> Stack | str:
    complaint = ""
    command = (program, "dump", "--json", "--locals", "--nonblocking", "--pid", str(pid))
    for _ in range(TRIES):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return "it took too long"
        except OSError as exc:  # a program for another system, or a file that is damaged
            raise CannotStartError(f"{program}: {exc.strerror}") from exc
        if done.returncode == 0 and (stack := read(done.stdout, pid)) is not None:
            return stack
        complaint = done.stderr
        if any(right in complaint.lower() for right in RIGHTS) or not Path(f"/proc/{pid}").exists():
            break
    return complaint


def parse(text: str, pid: int, root: str = "") -> Stack | None:
    """Return the thread of a dump that trains; None where there is none. ``root``: where its files lie."""
    try:
        threads = json.loads(text)
        main = _that_trains(threads, pid)
        if main is None:
            return None
        main, *others = [
            {**each, "frames": _absolute(each["frames"], pid, root)} for each in (main, *_besides(threads, main))
        ]
        return _stack(main["frames"], others, ends=any(map(_ends, others)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _stack(frames: list[dict[str, Any]], others: Sequence[dict[str, Any]] = (), *, ends: bool = False) -> Stack:
    own = [each for each in frames if not each.get("is_shim_entry") or each["name"]]
    return Stack(
        tuple(map(_frame, own)),
        tuple(tuple(_integers(each.get("locals") or ())) for each in own),
        tuple(_elsewhere(others)),
        ends,
        tuple(int(each.get("os_thread_id") or 0) for each in others if _runs_the_users(each)),
        built_in(own),
        all(map(_is_idle, others)),
        gil_held(others),
        raised(own),
    )


def _is_idle(thread: dict[str, Any]) -> bool:
    """Whether it only serves what the main thread gives it."""
    return any(str(each["filename"]).endswith(SERVE) for each in thread["frames"]) and not _runs_the_users(thread)


def _elsewhere(threads: Iterable[dict[str, Any]]) -> Iterator[tuple[str, tuple[Frame, ...]]]:
    for thread in threads:
        frames = tuple(_frame(each) for each in thread["frames"] if is_users(str(each["filename"])))
        if frames:
            yield str(thread.get("thread_name") or "?"), frames


def _ends(thread: dict[str, Any]) -> bool:
    """Whether it waits, after the script's last line, for threads that are no daemons."""
    return _is_in(thread, THREADS, LAST)


def _is_in(thread: dict[str, Any], file: str, function: str) -> bool:
    frames = thread["frames"]
    return any(str(each["name"]).endswith(function) and str(each["filename"]).endswith(file) for each in frames)


def _besides(threads: list[dict[str, Any]], main: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (each for each in threads if each is not main)


def _absolute(frames: list[dict[str, Any]], pid: int, root: str) -> list[dict[str, Any]]:
    return [{**each, "filename": named_here(str(each["filename"]), pid, root)} for each in frames]


def _frame(each: dict[str, Any]) -> Frame:
    owner = next((str(local.get("repr")) for local in each.get("locals") or () if local.get("name") == "self"), "")
    address = ADDRESS.search(owner)
    return Frame(str(each["filename"]), int(each["line"]), str(each["name"]), address[0] if address else "")


def _that_trains(threads: list[dict[str, Any]], pid: int) -> dict[str, Any] | None:
    """Return the main thread; another one where that alone runs code of the user's, as in a worker of Ray Train.

    A main thread that waits for the end of another one does not train: of several others it is the one inside of torch.
    One that waits for a future's result does not where another one is inside of torch.
    """
    main = next(_main(threads, pid), None)
    awaits = main is not None and _is_in(main, *RESULT)
    if main is None or (_runs_the_users(main) and not _joins(main) and not awaits):
        return main
    others = [each for each in threads if each is not main and _runs_the_users(each)]
    if len(others) > 1 or awaits:
        others = [each for each in others if any(TORCH in str(frame["filename"]) for frame in each["frames"])]
    return others[0] if len(others) == 1 else main


def _joins(thread: dict[str, Any]) -> bool:
    """Whether it is in Thread.join."""
    return _stack(thread["frames"]).joins


def _runs_the_users(thread: dict[str, Any]) -> bool:
    return any(is_users(str(each["filename"])) for each in thread["frames"])


def _main(threads: list[dict[str, Any]], pid: int) -> Iterator[dict[str, Any]]:
    yield from (each for each in threads if each.get("os_thread_id") == pid)
    yield from (each for each in threads if each.get("thread_name") == "MainThread")
    yield from threads if len(threads) == 1 else ()


def _integers(variables: Iterable[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    """Yield the integers alone: what else a program holds is nobody's business."""
    for each in variables:
        text = str(each.get("repr"))
        if text.isascii() and text.isdigit():
            yield str(each["name"]), int(text)
