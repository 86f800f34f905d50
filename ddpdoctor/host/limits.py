"""Limits and resources of this host and of the container that we run in."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

UNLIMITED = 1 << 60  # bytes; cgroup v1 writes "no limit" as a number near 2**63
CAP_IPC_LOCK = 14  # linux/capability.h
HOST_UIDS = ["0", "0", "4294967295"]  # user_namespaces(7): all of them, each as itself


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, None for "unlimited" or for what is not there.

    ``cpus`` is how many cores this process can use (affinity), ``cpu_quota`` how many the cgroup grants.
    ``shm_free`` and ``shm_total`` are None where there is no /dev/shm; ``shm_writable``: files can be made there.
    ``cgroup_memory`` is the least limit of the cgroup and those above it, ``cgroup_memory_used`` what is used of it
    without cached files. ``memlock`` is None too for a process that may lock memory whatever its limit.
    """

    shm_total: int | None
    shm_free: int | None
    memlock: int | None
    open_files: int | None
    open_files_hard: int | None
    memory_total: int
    memory_available: int
    cgroup_memory: int | None
    cgroup_memory_used: int | None
    cpus: int
    cpu_quota: float | None
    rdma_devices: tuple[str, ...]
    directory: str
    disk_total: int
    disk_free: int
    shm_writable: bool = True


def gather_limits(root: Path = Path("/"), directory: Path | None = None) -> Limits:
    """Read them; ``root`` is where /proc and /sys are looked for, ``directory`` where checkpoints would go."""
    import psutil

    directory = directory or Path.cwd()
    shm = _space(root / "dev/shm")
    disk = shutil.disk_usage(directory)
    memory = psutil.virtual_memory()
    limit, used = _cgroup_memory(root)
    return Limits(
        shm_total=shm and shm[0],
        shm_free=shm and shm[1],
        memlock=None if _may_lock(root) else _rlimit(resource.RLIMIT_MEMLOCK)[0],
        open_files=_rlimit(resource.RLIMIT_NOFILE)[0],
        open_files_hard=_rlimit(resource.RLIMIT_NOFILE)[1],
        memory_total=memory.total,
        memory_available=memory.available,
        cgroup_memory=limit if limit is not None and limit < memory.total else None,
        cgroup_memory_used=used if limit is not None and limit < memory.total else None,
        cpus=cores(),
        cpu_quota=_cpu_quota(root),
        rdma_devices=_names(root / "sys/class/infiniband"),
        directory=str(directory),
        disk_total=disk.total,
        disk_free=disk.free,
        shm_writable=shm is None or os.access(root / "dev/shm", os.W_OK | os.X_OK),
    )


def cores() -> int:
    """Return how many cores this process can run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _space(path: Path) -> tuple[int, int] | None:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return usage.total, usage.free


def _rlimit(which: int) -> tuple[int | None, int | None]:
    soft, hard = resource.getrlimit(which)
    return tuple(None if value == resource.RLIM_INFINITY else value for value in (soft, hard))  # type: ignore[return-value]  # two of two


def _names(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in folder.iterdir()))
    except OSError:
        return ()


def _groups(root: Path) -> dict[str, str]:
    """Return this process' cgroup by controller; the unified hierarchy (v2) by the empty name."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split(":", 2) for line in lines if line.count(":") > 1)
    return {name: path for _, controllers, path in fields for name in (*controllers.split(","), controllers)}


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of the group and of all above it: the limit of each holds.

    A container may be told a path of which it sees only the end, as the root of its own tree.
    """
    group = _groups(root).get(controller)
    if group is None:
        return
    base = root / "sys/fs/cgroup" / controller
    inside = PurePosixPath(group.lstrip("/"))
    if ".." not in inside.parts:
        yield from (base / path for path in (inside, *inside.parents) if path.parts)
    yield base


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _cgroup_memory(root: Path) -> tuple[int | None, int | None]:
    """Return the least memory limit and what is used of it, v2 first (Linux, Documentation/admin-guide/cgroup-v2.rst).

    Cached file contents do not count as used: the kernel gives them back when memory is asked for.
    """
    found: list[tuple[int, int | None]] = []
    for controller, limit_name, used_name, prefix in (
        ("", "memory.max", "memory.current", ""),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        for folder in _folders(root, controller):
            limit, used = _text(folder / limit_name), _text(folder / used_name)
            if limit.isdecimal() and int(limit) < UNLIMITED:
                cached = _cached(folder, prefix)
                found.append((int(limit), max(0, int(used) - cached) if used.isdecimal() else None))
    return min(found, key=lambda pair: pair[0], default=(None, None))


def _cached(folder: Path, prefix: str) -> int:
    wanted = {f"{prefix}active_file", f"{prefix}inactive_file"}
    words = (line.split() for line in _text(folder / "memory.stat").splitlines())
    return sum(int(line[1]) for line in words if len(line) > 1 and line[0] in wanted and line[1].isdecimal())


def _cpu_quota(root: Path) -> float | None:
    texts = [_text(folder / "cpu.max") for folder in _folders(root, "")]
    texts += [
        f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}"
        for controller in ("cpu", "cpu,cpuacct")
        for folder in _folders(root, controller)
    ]
    pairs = (text.split() for text in texts)
    shares = [
        int(pair[0]) / int(pair[1])
        for pair in pairs
        if len(pair) == 2 and pair[0].isdecimal() and pair[1].isdecimal() and int(pair[1]) > 0  # noqa: PLR2004 - quota and period
    ]
    return min(shares, default=None)


def _may_lock(root: Path) -> bool:
    """Whether the process has CAP_IPC_LOCK, for which RLIMIT_MEMLOCK does not count (capabilities(7)).

    Only that of the host's own user namespace counts for RDMA: the kernel asks capable(), not ns_capable().
    """
    if _text(root / "proc/self/uid_map").split() != HOST_UIDS:
        return False
    for line in _text(root / "proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            with suppress(ValueError):
                return bool(int(value, 16) >> CAP_IPC_LOCK & 1)
    return False


def human_size(size: float) -> str:
    """Return a size in bytes as people read it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:  # noqa: PLR2004 - the step between units
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
