"""Limits and resources of this host and of the container that we run in."""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

UNLIMITED = 1 << 60  # bytes; cgroup v1 writes "no limit" as a number near 2**63


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, None for "unlimited" or for what is not there.

    ``cpus`` is how many cores this process can use (affinity), ``cpu_quota`` how many the cgroup grants.
    ``shm_free`` and ``shm_total`` are None where there is no /dev/shm.
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


def gather_limits(root: Path = Path("/"), directory: Path | None = None) -> Limits:
    """Read them; ``root`` is where /proc and /sys are looked for, ``directory`` where checkpoints would go."""
    directory = directory or Path.cwd()
    shm = _space(root / "dev/shm")
    disk = shutil.disk_usage(directory)
    memory = psutil.virtual_memory()
    limit, used = _cgroup_memory(root)
    return Limits(
        shm_total=shm and shm[0],
        shm_free=shm and shm[1],
        memlock=_rlimit(resource.RLIMIT_MEMLOCK)[0],
        open_files=_rlimit(resource.RLIMIT_NOFILE)[0],
        open_files_hard=_rlimit(resource.RLIMIT_NOFILE)[1],
        memory_total=memory.total,
        memory_available=memory.available,
        cgroup_memory=limit if limit is not None and limit < memory.total else None,
        cgroup_memory_used=used if limit is not None and limit < memory.total else None,
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        cpu_quota=_cpu_quota(root),
        rdma_devices=_names(root / "sys/class/infiniband"),
        directory=str(directory),
        disk_total=disk.total,
        disk_free=disk.free,
    )


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
    """Give this process' cgroup by controller; the unified hierarchy (v2) by the empty name."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return {}
    groups: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def _read(root: Path, controller: str, name: str) -> str | None:
    """Read a cgroup's file: of the group itself, else of the root that a container sees as its own."""
    group = _groups(root).get(controller)
    if group is None:
        return None
    base = root / "sys/fs/cgroup" / controller
    for folder in (base / group.lstrip("/"), base):
        try:
            return (folder / name).read_text().strip()
        except OSError:
            continue
    return None


def _cgroup_memory(root: Path) -> tuple[int | None, int | None]:
    """Give the memory limit and what is used, v2 first (Linux, Documentation/admin-guide/cgroup-v2.rst)."""
    for controller, limit_name, used_name in (
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, used = _read(root, controller, limit_name), _read(root, controller, used_name)
        if limit and limit.isdigit() and int(limit) < UNLIMITED:
            return int(limit), int(used) if used and used.isdigit() else None
    return None, None


def _cpu_quota(root: Path) -> float | None:
    text = _read(root, "", "cpu.max")
    if text:
        quota, _, period = text.partition(" ")
        return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None
    for controller in ("cpu", "cpu,cpuacct"):
        quota, period = _read(root, controller, "cpu.cfs_quota_us"), _read(root, controller, "cpu.cfs_period_us")  # type: ignore[assignment]  # texts or None
        if quota and period and quota.isdigit() and period.isdigit():
            return int(quota) / int(period)
    return None


def human(size: float) -> str:
    """Give a size in bytes as people read it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:  # noqa: PLR2004 - the step between units
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
