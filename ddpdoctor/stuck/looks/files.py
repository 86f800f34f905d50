"""Where the files are that stacks of other processes name: in a container, at the same path, lie others."""

from __future__ import annotations

import functools
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

IN_CONTAINER = re.compile(r"^/proc/\d+/root(?=/)")


def root_of(pids: Iterable[int]) -> str:
    """Return the folder below which the files of processes lie that share another mount namespace than this one's.

    Empty where they see the files that this one sees, and where they see different ones: their lines are compared.
    """
    by_space: dict[str, int] = {}
    for pid in sorted(pids):
        with suppress(OSError):
            by_space.setdefault(_space(pid), pid)
    with suppress(OSError):
        if len(by_space) == 1 and _space("self") not in by_space:
            return f"/proc/{by_space.popitem()[1]}/root"
    return ""


def named_here(file: str, pid: int, root: str) -> str:
    """Return a path by which this process finds a file; some are named from the folder of the one that runs them."""
    if file.startswith("<"):
        return file
    if not file.startswith("/"):
        with suppress(OSError):
            file = str(Path(f"/proc/{pid}/cwd").readlink() / file)
    return f"{root}{file}" if root and _is_other(root, file) else file


def as_there(file: str) -> str:
    """Return a path as the process itself would name it."""
    return IN_CONTAINER.sub("", file)


@functools.cache
def _is_other(root: str, file: str) -> bool:
    """Whether a file is there, and this process sees none, or another one, at its path."""
    inner = Path(f"{root}{file}")
    try:
        return inner.is_file() and not (Path(file).is_file() and inner.samefile(file))
    except OSError:
        return False


def _space(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/mnt")  # noqa: PTH115 - a text
