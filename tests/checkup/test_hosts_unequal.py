"""Hosts that differ by what is installed, by their clocks and by the room that they have: told on the right one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from namespaces import Done, Hosts, finish, network

CHECK = (sys.executable, "-m", "ddpdoctor", "check", "--only")
CLOCK = "import time as t\nreal = t.time\nt.time = lambda: real() + {seconds}\n"
TRAIN = """
import numpy, transformers, tqdm
import torch, torch.distributed as dist
def build(): return torch.nn.Linear(4, 2)
if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Hosts]:
    """Yield two hosts."""
    with network(2) as hosts:
        yield hosts


@pytest.fixture
def hosts(made: Hosts) -> Hosts:
    """Return them without faults."""
    made.reset()
    return made


def checked(
    hosts: Hosts, only: str, *args: str, paths: Mapping[int, Path] | None = None, before: str = "true", wait: str = "60"
) -> list[Done]:
    """Run these checks on each host, with a folder before its packages; on the second one, something comes before."""
    running = []
    for host in range(hosts.count):
        environ = hosts.environ(host, {"PYTHONPATH": str(paths[host])} if paths else None)
        script = f'{before if host else "true"} && exec "$@"'
        command = (*CHECK, only, "--wait", wait, *args)
        running.append(hosts.start(host, "sh", "-c", script, "sh", *command, environ=environ, apart=True))
    return [finish(each) for each in running]


def findings(done: Done) -> list[str]:
    """Return the first lines of what was found."""
    return [line for line in done.out.splitlines() if line.startswith(("error", "warning", "note"))]


def install(folder: Path, versions: Mapping[str, str]) -> Path:
    """Write what pip leaves of packages; numpy itself is there."""
    for name, version in versions.items():
        kept = folder / f"{name}-{version}.dist-info"
        kept.mkdir(parents=True)
        (kept / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if name != "numpy":
            (folder / f"{name}.py").write_text("")
    return folder


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"numpy": "1.26.4"}, ["warning DDP128 packages-differ-between-hosts: numpy differs: 2.4.6 on a; 1.26.4 on b"]),
        pytest.param(
            {"transformers": "4.40.2", "tqdm": "4.60"},
            [
                "warning DDP128 packages-differ-between-hosts: transformers differs: 4.57.1 on a; 4.40.2 on b",
                "note DDP128 packages-differ-between-hosts: tqdm differs: 4.67 on a; 4.60 on b",
            ],
            marks=pytest.mark.nightly,
        ),
        pytest.param({"numpy": "2.4.6"}, [], marks=pytest.mark.nightly),
    ],
)
def test_packages_that_the_training_imports_are_compared(
    hosts: Hosts, tmp_path: Path, second: Mapping[str, str], said: list[str]
) -> None:
    """Of a script that is named; what its ranks need not share is a note."""
    (tmp_path / "train.py").write_text(TRAIN)
    first = {"numpy": "2.4.6", "transformers": "4.57.1", "tqdm": "4.67"}
    paths = {
        host: install(tmp_path / f"{host}/site-packages", {**first, **(second if host else {})}) for host in (0, 1)
    }
    only = "packages-differ-between-hosts"
    done = checked(hosts, only, "--model", f"{tmp_path}/train.py:build", paths=paths)

    assert findings(done[0]) == said, done[0].said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("ro", "the file system is read-only"),
        pytest.param("size=1m", "1,024 kB are free there", marks=pytest.mark.nightly),
        pytest.param("size=64m", "", marks=pytest.mark.nightly),
    ],
)
def test_a_host_that_cannot_write_temporary_files_is_named(
    hosts: Hosts, tmp_path: Path, options: str, said: str
) -> None:
    """By the host that reports, with what mends it there."""
    (folder := tmp_path / "scratch").mkdir()
    before = f"mount -t tmpfs -o {options} t {folder} && export TMPDIR={folder}"
    done = checked(hosts, "temporary-folder-not-writable,hosts-missing", before=before)

    assert [each.status for each in done] == [int(bool(said)), 0], done[0].said
    assert len(findings(done[0])) == int(bool(said))
    if said:
        assert f"temporary files cannot be written to TMPDIR={folder}: {said}" in done[0].out
        assert "host b" in done[0].out
        assert "# on b" in done[0].out or "# in the job" in done[0].out


@pytest.mark.parametrize(("seconds", "said"), [(-45, "45 s: that of a is ahead"), (4, "")])
def test_clocks_that_differ_are_told(hosts: Hosts, tmp_path: Path, seconds: int, said: str) -> None:
    """A few seconds are what a network and a busy host add."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1/sitecustomize.py").write_text(CLOCK.format(seconds=seconds))
    done = checked(hosts, "clocks-differ,hosts-missing", paths={0: tmp_path / "0", 1: tmp_path / "1"})

    assert len(findings(done[0])) == int(bool(said)), done[0].said
    assert said in " ".join(findings(done[0]))


def test_a_cable_that_is_out_from_the_start_is_named_on_its_host(hosts: Hosts) -> None:
    """No firewall is blamed for it."""
    bridge = ("ip", "netns", "exec", f"{hosts.tag}x", "ip", "link", "set", "p1")
    subprocess.run([*bridge, "down"], check=True, timeout=20)
    try:
        done = checked(hosts, "master-unreachable,hosts-missing", wait="3")
    finally:
        subprocess.run([*bridge, "up"], check=True, timeout=20)

    (told,) = findings(done[1])
    assert "eth0 of b, the interface to the master 10.77.0.1, is without a carrier" in told, done[1].said
    assert "iptables" not in done[1].out
