from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.probe.limits import gather_limits, human
from ddpdoctor.probe.versions import gather_versions


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_host_can_be_read() -> None:
    """All that every host has is there."""
    limits = gather_limits()

    assert limits.cpus >= 1
    assert limits.memory_total >= limits.memory_available > 0
    assert limits.disk_total >= limits.disk_free > 0


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/memory.max": "1073741824\n",
            "sys/fs/cgroup/job/memory.current": "5242880\n",
            "sys/fs/cgroup/job/cpu.max": "150000 100000\n",
        },
        {  # in a container the group that is named is not there, and its files are at the top
            "proc/self/cgroup": "0::/../..\n",
            "sys/fs/cgroup/memory.max": "1073741824\n",
            "sys/fs/cgroup/memory.current": "5242880\n",
            "sys/fs/cgroup/cpu.max": "150000 100000\n",
        },
        {
            "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1073741824\n",
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "5242880\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
        },
    ],
    ids=["v2", "v2 in a container", "v1"],
)
def test_limits_of_cgroups(tmp_path: Path, files: dict[str, str]) -> None:
    """Both versions, also as a container sees them."""
    limits = gather_limits(_tree(tmp_path, files))

    assert (limits.cgroup_memory, limits.cgroup_memory_used, limits.cpu_quota) == (2**30, 5 * 2**20, 1.5)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/cpu.max": "max 100000\n"},
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "", "sys/fs/cgroup/cpu.max": "\n"},
    ],
    ids=["no cgroups", "v2 unlimited", "v1 unlimited", "empty files"],
)
def test_no_limit_is_none(tmp_path: Path, files: dict[str, str]) -> None:
    """Unlimited, in each way in which kernels write it."""
    limits = gather_limits(_tree(tmp_path, files))

    assert (limits.cgroup_memory, limits.cpu_quota) == (None, None)


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    """No /dev/shm and no RDMA."""
    limits = gather_limits(tmp_path)

    assert (limits.shm_total, limits.shm_free, limits.rdma_devices) == (None, None, ())


def test_versions_are_read_without_importing_torch() -> None:
    """The version, and the CUDA that it was built for."""
    import torch

    versions = gather_versions({})

    assert versions.torch == torch.__version__
    assert versions.torch_cuda == torch.version.cuda


def test_another_nccl_on_the_loaders_path_is_found(tmp_path: Path) -> None:
    """With its version, by the name that its link leads to."""
    (tmp_path / "libnccl.so.2.18.3").write_text("")
    (tmp_path / "libnccl.so.2").symlink_to("libnccl.so.2.18.3")
    found = gather_versions({"LD_LIBRARY_PATH": f"/nowhere:{tmp_path}"}).nccl

    assert [(library.path, library.version) for library in found if "/" in library.path] == [
        (str(tmp_path / "libnccl.so.2.18.3"), "2.18.3")
    ]


def test_sizes_are_read_by_people() -> None:
    """Binary units, one digit."""
    assert [human(size) for size in (5, 2**20, 3 * 2**30, 2**50)] == ["5 B", "1.0 MiB", "3.0 GiB", "1024.0 TiB"]
