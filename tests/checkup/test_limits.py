from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from ddpdoctor.host.limits import gather_limits, human_size
from ddpdoctor.host.temporary import Temporary, gather_temporary
from ddpdoctor.host.versions import gather_versions, has_rpath


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


def test_a_limit_of_a_group_above_counts_too(tmp_path: Path) -> None:
    """Slurm and systemd limit the job, and a process sits in a group below it."""
    files = {
        "proc/self/cgroup": "0::/job/step/task\n",
        "sys/fs/cgroup/job/memory.max": "2147483648\n",
        "sys/fs/cgroup/job/memory.current": "8388608\n",
        "sys/fs/cgroup/job/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/job/step/memory.max": "max\n",
        "sys/fs/cgroup/job/step/task/memory.max": "4294967296\n",
        "sys/fs/cgroup/job/step/task/memory.current": "4194304\n",
        "sys/fs/cgroup/job/step/task/cpu.max": "max 100000\n",
    }
    limits = gather_limits(_tree(tmp_path, files))

    assert (limits.cgroup_memory, limits.cgroup_memory_used, limits.cpu_quota) == (2**31, 2**23, 1.5)


@pytest.mark.parametrize(("folder", "limit", "used", "prefix"), [
    ("", "memory.max", "memory.current", ""),
    ("memory/", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
])  # fmt: skip
def test_cached_files_are_not_used_memory(tmp_path: Path, folder: str, limit: str, used: str, prefix: str) -> None:
    """A container that has read a data set is full of them, and the kernel gives them back."""
    files = {
        "proc/self/cgroup": f"3:{folder.rstrip('/')}:/\n",
        f"sys/fs/cgroup/{folder}{limit}": "1073741824",
        f"sys/fs/cgroup/{folder}{used}": "1073000000",
        f"sys/fs/cgroup/{folder}memory.stat": f"{prefix}inactive_file 900000000\n{prefix}active_file 73000000\nodd\n",
    }

    assert gather_limits(_tree(tmp_path, files)).cgroup_memory_used == 100_000_000


@given(st.text("0123456789:/,.\nabcmemory ", max_size=60))
def test_no_list_of_cgroups_makes_it_fail(text: str) -> None:
    """Whatever the kernel writes there."""
    with tempfile.TemporaryDirectory() as folder:
        gather_limits(_tree(Path(folder), {"proc/self/cgroup": text}))


@pytest.mark.parametrize(("ids", "free"), [("0 0 4294967295", True), ("0 1000 1", False)])
def test_a_process_that_may_lock_has_no_limit(tmp_path: Path, ids: str, *, free: bool) -> None:
    """CAP_IPC_LOCK in the host's user namespace; in another one it does not count for RDMA."""
    files = {"proc/self/status": "Name:\tx\nCapEff:\t0000000000004000\n", "proc/self/uid_map": f"  {ids}\n"}
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, before[1]))
    try:
        assert (gather_limits(_tree(tmp_path, files)).memlock is None) == free
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)


@pytest.mark.parametrize(("flag", "pinned"), [("--disable-new-dtags", True), ("--enable-new-dtags", False)])
def test_rpath_is_told_from_runpath(tmp_path: Path, flag: str, *, pinned: bool) -> None:
    """ld.so follows the one before LD_LIBRARY_PATH, and the other after it."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler")
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    library = tmp_path / "liba.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-Wl,{flag},-rpath,$ORIGIN", "-o", str(library), str(tmp_path / "a.c")],
        check=True,
    )

    assert has_rpath(library) is pinned


@given(st.binary(max_size=200))
def test_no_file_makes_the_reading_of_rpath_fail(data: bytes) -> None:
    """Cut files and texts have none."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\x7fELF\x02\x01" + data)
        file.flush()

        assert has_rpath(Path(file.name)) in (True, False)


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
    assert [human_size(size) for size in (5, 2**20, 3 * 2**30, 2**50)] == ["5 B", "1.0 MiB", "3.0 GiB", "1024.0 TiB"]


def test_where_temporary_files_go(tmp_path: Path) -> None:
    """To the folder that TMPDIR names; where that is not there, to the next one, of which nothing is said."""
    (tmp_path / "here").mkdir()
    (tmp_path / "file").write_text("")
    usual = (str(tmp_path / "here"),)
    assert gather_temporary({"TMPDIR": usual[0]}, usual) == Temporary(usual[0], "TMPDIR")
    assert gather_temporary({}, usual) == Temporary(usual[0])
    for name, problem in (("gone", "it is not there"), ("file", "it is no folder")):
        folder = str(tmp_path / name)
        assert gather_temporary({"TMPDIR": "", "TEMP": folder}, usual) == Temporary(folder, "TEMP", problem, usual[0])


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone mounts")
def test_a_temporary_folder_that_is_full_or_read_only(tmp_path: Path) -> None:
    """Also for root, who is allowed everything."""
    look = f"from ddpdoctor.host.temporary import *; print(gather_temporary(dict(TMPDIR={str(tmp_path)!r})).problem)"
    for options, problem in (("ro", "read-only"), ("size=1m", "kB are free"), ("size=64m,nr_inodes=1", "inodes")):
        script = f'mount -t tmpfs -o {options} t {tmp_path} && exec {sys.executable} -c "{look}"'
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        assert problem in done.stdout, options


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone mounts")
@pytest.mark.parametrize(("options", "is_writable"), [("ro", False), ("rw", True)])
def test_shared_memory_that_is_read_only(options: str, *, is_writable: bool) -> None:
    """Also for root; how much room there is says nothing of it."""
    command = f"{sys.executable} -m ddpdoctor check --only shm-too-small"
    script = f"mount -t tmpfs -o {options} t /dev/shm && exec {command}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    if "mount:" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    assert done.returncode == int(not is_writable), done.stderr
    assert ("error DDP151 shm-too-small: no file can be made in /dev/shm" in done.stdout) is not is_writable
