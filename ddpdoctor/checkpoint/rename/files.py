"""Writes files so that a kill at any moment leaves the old one or the new one, and nothing else."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ddpdoctor.checkpoint.beside import temporary
from ddpdoctor.checkpoint.rename.splice import Splice

FICLONE = 0x40049409  # <linux/fs.h>: share the blocks of another file, where the file system can
SAME = 1 << 30  # bytes that the kernel copies at a time
UNSUPPORTED = {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.ENOTTY, errno.EISDIR}
CHUNK = 1 << 24  # where it does not


def write(path: Path, fill: Callable[[int], None], like: str = "", check: Callable[[str], None] | None = None) -> None:
    """Have a new file filled through its descriptor, and put it at ``path``, whole and on the disk.

    It gets the permissions of the file ``like``. Where the file system can, it has no name until it is whole. ``check``
    gets a name of it before it has its own; when it raises, there is no new file.
    """
    new = temporary(path)
    with suppress(FileNotFoundError):
        new.unlink()  # of a run that was killed
    nameless = _nameless(path.parent)
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666) if nameless is None else nameless
    try:
        fill(descriptor)
        if like:
            _same_permissions(descriptor, like)
        os.fsync(descriptor)
        if check:
            check(str(new) if nameless is None else f"/proc/self/fd/{descriptor}")
        if nameless is not None:
            os.link(f"/proc/self/fd/{descriptor}", new, src_dir_fd=descriptor)
        new.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            new.unlink()
        raise
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def _nameless(folder: Path) -> int | None:
    if not (hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").is_dir()):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666)
    except OSError as exc:
        if exc.errno in UNSUPPORTED:
            return None
        raise


def _same_permissions(descriptor: int, like: str) -> None:
    known = Path(like).stat()
    os.fchmod(descriptor, stat.S_IMODE(known.st_mode))
    with suppress(PermissionError):
        os.fchown(descriptor, known.st_uid, known.st_gid)


def sync_folder(folder: Path) -> None:
    """See to it that the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copied(splice: Splice) -> Callable[[int], None]:
    """Return what fills a new file with the file of ``splice`` as it is after it."""

    def fill(target: int) -> None:
        source = os.open(splice.path, os.O_RDONLY)
        try:
            kept = splice.stop - splice.start == len(splice.data) or splice.stop == splice.size
            if kept and _cloned(source, target):
                os.ftruncate(target, splice.size if splice.stop < splice.size else splice.start)
            else:
                copy_range(source, 0, target, 0, splice.start)
                copy_range(source, splice.stop, target, splice.start + len(splice.data), splice.size - splice.stop)
            write_at(target, splice.start, splice.data)
        finally:
            os.close(source)

    return fill


def _cloned(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError as exc:
        if exc.errno in UNSUPPORTED | {errno.EPERM}:
            return False
        raise
    return True


def copy_range(source: int, start: int, target: int, at: int, count: int) -> None:
    """Copy bytes from one file to another within the kernel."""
    while count > 0:
        done = _copied_at_once(source, start, target, at, min(count, SAME))
        if not done:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        start, at, count = start + done, at + done, count - done


def _copied_at_once(source: int, start: int, target: int, at: int, count: int) -> int:
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(source, target, count, start, at)
        except OSError as exc:
            if exc.errno not in UNSUPPORTED:
                raise
    data = os.pread(source, min(count, CHUNK), start)
    write_at(target, at, data)
    return len(data)


def write_at(target: int, at: int, data: bytes) -> None:
    """Write all of the bytes at a position."""
    view = memoryview(data)
    while view:
        done = os.pwrite(target, view, at)
        view, at = view[done:], at + done


def unchanged(path: Path) -> Splice:
    """Return the change that changes nothing."""
    size = path.stat().st_size
    return Splice(str(path), size, size, size, b"")


def write_folder(target: Path, files: Mapping[Path, Callable[[int], None]], check: Callable[[str], None]) -> None:
    """Have files filled, each called as it is and with its permissions, in a new folder; else as ``write``."""
    new = temporary(target)
    shutil.rmtree(new, ignore_errors=True)  # of a run that was killed
    new.mkdir()
    try:
        for path, fill in files.items():
            write(new / path.name, fill, str(path))
        check(str(new))
        new.rename(target)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    sync_folder(target.parent)
