"""Which frames are the user's own code."""

from __future__ import annotations

import functools
import inspect
import itertools
import os.path
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import Site

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame as Native
    from ddpdoctor.logs.records import Frame

LIBRARIES = tuple(
    f"{path}/" for path in {*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))} if path
)
STANDARD = re.compile(r"/lib(?:64)?/python3\.\d+t?/")
"""The folder of the standard library: that of another interpreter, too, whose processes are looked at from outside."""
PACKAGE = f"{Path(__file__).parents[1]}/"
WATCH = f"{PACKAGE}watch/"
CALLERS = 3  # lines of a place
DEEPEST = 40  # frames
Place = tuple[tuple[str, int, str], ...]
OF_NOBODY_ELSE = 3  # references: of a frame, a variable, and the argument of getrefcount
PATIENTS = f"{PACKAGE}fixtures/"  # in an installed package they lie below it


@functools.cache
def is_users(file: str) -> bool:
    """Whether a file is neither of the interpreter, nor of an installed package, nor of this one."""
    if file.startswith(PATIENTS):
        return True
    if "/site-packages/" in file or "/dist-packages/" in file or file.startswith("<frozen"):
        return False
    return not file.startswith((PACKAGE, *LIBRARIES)) and STANDARD.search(file) is None


def is_watchs(file: str) -> bool:
    """Whether a file is one of the watch itself, whose frames stand between the user's and torch's."""
    return file.startswith(WATCH)


def users_sites(stack: Iterable[Frame | Native]) -> Iterator[Site]:
    """Yield the user's own lines of a stack, in its order."""
    return (
        Site(each.file, each.line, each.function)
        for each in stack
        if is_users(each.file) and not _is_generated(each.file, each.function)
    )


def _is_generated(file: str, function: str) -> bool:
    """Whether a function was written by a library at run time, as the ``__init__`` of a dataclass.

    The functions of ``python -c`` come from a file of that name, too: of those the next one is taken.
    """
    return file == "<string>" and function.startswith("__")


def frames() -> Iterator[FrameType]:
    """Yield what this thread is executing, innermost first, from the caller on."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - what inspect.currentframe() gives, without a search
    while frame is not None:
        yield frame
        frame = frame.f_back


def file_of(code: CodeType) -> str:
    """Return the file of a code object by one name on all ranks.

    Where ``python ./train.py`` starts rank 0 and a framework the others, its own is ``/folder/./train.py``.
    """
    return _normal(code.co_filename)


def site_of(frame: FrameType) -> Site:
    """Return the line that a frame is at."""
    return _site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def user_site() -> Site | None:
    """Return the innermost line of the user's code that is being executed in this thread; None where there is none.

    It is asked for in each communication, and so goes through the frames itself.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as in frames()
    while frame is not None:
        code = frame.f_code
        if is_users(code.co_filename) and not _is_generated(code.co_filename, code.co_name):
            return site_of(frame)
        frame = frame.f_back
    return None


def lines_of_the_users() -> Place:
    """Return the lines of the user's that have led here, innermost first: file, line and function."""
    codes = ((each.f_code, each.f_lineno) for each in itertools.islice(frames(), DEEPEST))
    users = ((file_of(code), line, code.co_name) for code, line in codes if is_users(code.co_filename))
    return tuple(itertools.islice(users, CALLERS))


@functools.lru_cache(maxsize=4096)
def _site(file: str, line: int, function: str) -> Site:
    return Site(_normal(file), line, function)


@functools.cache
def _normal(file: str) -> str:
    return os.path.normpath(file)


def variables_of(frame: FrameType) -> dict[str, Any]:
    """Return the variables of a frame, and leave the frame as it was.

    Before Python 3.13 ``f_locals`` of a function stays in its frame, and what it names lives on: a model that the
    script deletes before it destroys its process group would be freed after it, which can make torch hang. It is
    emptied, unless somebody else has it, or a debugger would write it back.
    """
    held = frame.f_locals
    found = dict(held)
    is_a_copy = sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if is_a_copy and sys.gettrace() is None and sys.getrefcount(held) <= OF_NOBODY_ELSE:
        held.clear()
    return found


def calling_package() -> str:
    """Return the name of the package that called into torch here; empty where that was the user's own code."""
    for frame in frames():
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
        if is_users(file):
            return ""
        if not file.startswith(PACKAGE) and module.partition(".")[0] != "torch":
            return module.partition(".")[0]
    return ""
