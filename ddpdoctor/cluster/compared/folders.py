"""Folders of the training that hosts compare: its data, by names and sizes; where it saves, by files written there."""

from __future__ import annotations

import ast
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.cluster.compared.imported import scripts
from ddpdoctor.cluster.host import LONGEST, ProtocolError
from ddpdoctor.source.text.syntax import NO_PYTHON

if TYPE_CHECKING:
    from ddpdoctor.cluster.host import Host

FILES = 100_000  # of a folder of data
SECONDS = 20.0  # for listing them
ENTRIES = 400  # that are told to the other hosts
NOT_DATA = (".lock", ".tmp", ".incomplete", ".cache", ".pyc", ".log")  # what reading data leaves behind
CACHES = ("cache-", "tmp")  # of Hugging Face datasets, and of half-written files
MARK = b"ddpdoctor check: this file shows whether hosts share the folder; it can go\n"
LATER = 2.0  # seconds in which a file of another host appears, where a network file system takes its time
SHARDED = ("torch.distributed.checkpoint", "torch.distributed._shard.checkpoint")


def sizes(folder: str) -> tuple[dict[str, str], str]:
    """Return the size of each file below a folder, of each subfolder where there are many; or why not."""
    root, ends_at = Path(folder), time.monotonic() + SECONDS
    if not root.is_dir():
        return {}, "it is a file" if root.exists() else "it is not there"
    found: dict[str, int] = {}
    try:
        for path, size in _files(root, lambda: time.monotonic() < ends_at):
            found[path] = size
            if len(found) > FILES:
                return {}, f"it has more than {FILES:,} files"
    except TimeoutError:
        return {}, f"listing it takes more than {SECONDS:.0f} s"
    except OSError as exc:
        return {}, exc.strerror or str(exc)
    return _told(found), ""


def _files(folder: Path, in_time: Callable[[], bool], before: str = "") -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if entry.name.startswith((".", "__pycache__", *CACHES)) or entry.name.endswith(NOT_DATA):
            continue
        if not in_time():
            raise TimeoutError
        if entry.is_dir():
            yield from _files(Path(entry.path), in_time, f"{before}{entry.name}/")
        else:
            yield before + entry.name, entry.stat().st_size if entry.is_file() else -1


def _told(found: dict[str, int]) -> dict[str, str]:
    """Return each file, or the sums of the folders at the greatest depth at which they are few enough."""
    if len(found) <= ENTRIES:
        return {name[-LONGEST:]: "a broken link" if size < 0 else f"{size:,} bytes" for name, size in found.items()}
    sums: dict[str, tuple[int, int]] = {}
    for depth in (3, 2, 1, 0):
        sums = {}
        for name, size in found.items():
            parts = name.split("/")[:-1][:depth]
            folder = "/".join(parts) + "/"
            files, total = sums.get(folder, (0, 0))
            sums[folder] = files + 1, total + max(size, 0)
        if len(sums) <= ENTRIES:
            break
    return {folder[-LONGEST:]: f"{files:,} files, {total:,} bytes" for folder, (files, total) in sums.items()}


def leave_mark(folder: str, name: str) -> str:
    """Write a file there, as a checkpoint would be; return why that fails, nothing where it does not."""
    try:
        with (Path(folder) / name).open("xb") as file:
            file.write(MARK)
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        take_mark(folder, name)
        return exc.strerror or str(exc)
    return ""


def take_mark(folder: str, name: str) -> None:
    """Remove that file."""
    with contextlib.suppress(OSError):  # where nothing can be written, nothing was
        Path(folder, name).unlink()


def marks_seen(here: int, hosts: tuple[Host, ...]) -> Iterator[tuple[int, int]]:
    """Yield this host's seat with that of each other whose file is in this host's folder."""
    mine = hosts[here]
    wanted = {seat: host for seat, host in enumerate(hosts) if seat != here and _plain(host.save_mark)}
    if not mine.save or mine.save_problem or not wanted:
        return
    ends_at = time.monotonic() + LATER
    while wanted:
        for seat in [each for each, host in wanted.items() if Path(mine.save, host.save_mark).exists()]:
            del wanted[seat]
            yield here, seat
        if time.monotonic() > ends_at:
            return
        time.sleep(0.1)


def _plain(name: str) -> bool:
    """Whether it is a name of a file of ours: another host says it."""
    return name.startswith(".ddpdoctor-") and "/" not in name and name.isascii() and name.isprintable()


def marks_from(data: object, source: int, count: int) -> Iterator[tuple[int, int]]:
    """Read what another host says of it.

    Raises:
        ProtocolError: it is no list of hosts.
    """
    if not isinstance(data, list) or len(data) > count:
        raise ProtocolError("hosts that are seen are a list")
    for target in data:
        if type(target) is not int or not 0 <= target < count:
            raise ProtocolError("a host that is seen has no such number")
        yield source, target


def saves_sharded(named: Iterable[str]) -> str:
    """Return the line of a named file that imports what writes a checkpoint from every rank; empty where none does."""
    for path in scripts(named):
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, *NO_PYTHON):
            continue
        for node in ast.walk(tree):
            if _imports(node):
                return f"{path.name}:{node.lineno}"  # type: ignore[attr-defined]  # an import has one
    return ""


def _imports(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.startswith(SHARDED) for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module:
        full = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        return any(each.startswith(SHARDED) for each in full)
    return False
