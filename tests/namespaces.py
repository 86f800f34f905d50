"""Hosts in network namespaces: each with its own interface, host name and hosts file, on one bridge."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NAMES = "abcdefgh"


@dataclass(slots=True)
class Done:
    """What a command on a host said, and how it ended."""

    status: int
    out: str
    err: str
    seconds: float

    @property
    def said(self) -> str:
        """Both streams."""
        return self.out + self.err


@dataclass(slots=True)
class Hosts:
    """A few hosts; ``address(0)`` is that of the first one."""

    count: int
    folder: Path
    tag: str
    _names: dict[str, dict[str, str]] = field(default_factory=dict)

    def address(self, host: int) -> str:
        """Return the address of a host on the common network."""
        return f"10.77.0.{host + 1}"

    def on(self, host: int, script: str) -> str:
        """Run a shell script in a host's network, as root; return what it printed."""
        done = subprocess.run(
            ["ip", "netns", "exec", self._netns(host), "sh", "-ec", script],
            capture_output=True, text=True, check=False, timeout=20,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def resolve(self, host: int, names: Mapping[str, str] | None = None) -> None:
        """Write a host's own hosts file: all hosts by their names, but for those that are given."""
        known = {NAMES[each]: self.address(each) for each in range(self.count)} | dict(names or {})
        lines = [f"{address} {name}" for name, address in known.items() if address]
        (self.folder / f"hosts.{host}").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))

    def reset(self) -> None:
        """Take back what a test has done to the hosts."""
        for host in range(self.count):
            self.resolve(host)
            self.on(host, "nft flush ruleset; ip link set eth0 up mtu 1500")

    def start(self, host: int, *command: str, environ: Mapping[str, str | None] | None = None) -> subprocess.Popen[str]:
        """Start a command on a host."""
        inner = 'mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@"'
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MASTER_", "RANK", "WORLD"))}
        merged = {**kept, "COLUMNS": "1000", **(environ or {})}
        return subprocess.Popen(
            [
                *("ip", "netns", "exec", self._netns(host), "unshare", "--uts", "--mount"),
                *("sh", "-c", inner, "sh", str(self.folder / f"hosts.{host}"), NAMES[host], *command),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={name: value for name, value in merged.items() if value is not None},
        )  # fmt: skip

    def check(
        self, *args: str, each: Mapping[int, Mapping[str, str | None]] | None = None, hosts: Iterable[int] | None = None
    ) -> list[Done]:
        """Run ``ddpdoctor check`` on all hosts at once, as by hand; ``each`` changes a host's variables."""
        wanted = list(range(self.count) if hosts is None else hosts)
        started = time.monotonic()
        running = []
        for host in wanted:
            environ: dict[str, str | None] = {
                "MASTER_ADDR": self.address(0), "MASTER_PORT": "29500",
                "NNODES": str(self.count), "NODE_RANK": str(host), **(each or {}).get(host, {}),
            }  # fmt: skip
            running.append(self.start(host, sys.executable, "-m", "ddpdoctor", "check", *args, environ=environ))
        return [finish(process, started) for process in running]

    def _netns(self, host: int) -> str:
        return f"{self.tag}{NAMES[host]}"


def finish(process: subprocess.Popen[str], started: float = 0.0) -> Done:
    """Wait for a command."""
    try:
        out, err = process.communicate(timeout=100)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += "\n(killed: it did not end)"
    return Done(process.returncode, out, err, time.monotonic() - started)


@contextmanager
def network(count: int) -> Iterator[Hosts]:
    """Make hosts, and take them away again."""
    why = missing()
    if why:
        pytest.skip(why)
    tag = f"dd{os.getpid() % 100000}"
    with tempfile.TemporaryDirectory(prefix="ddpdoctor-hosts-") as folder:
        hosts = Hosts(count, Path(folder), tag)
        bridge = f"{tag}x"
        try:
            _ip("netns", "add", bridge)
            _ip("-n", bridge, "link", "add", "br0", "type", "bridge")
            _ip("-n", bridge, "link", "set", "br0", "up")
            for host in range(count):
                name = f"{tag}{NAMES[host]}"
                _ip("netns", "add", name)
                _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{host}", "netns", bridge)
                _ip("-n", bridge, "link", "set", f"p{host}", "master", "br0", "up")
                # Packets as a wire has them: none that the kernel has put together to large ones.
                _ip("-n", name, "link", "set", "eth0", "gso_max_segs", "1")
                _ip("-n", name, "addr", "add", f"{hosts.address(host)}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "link", "set", "eth0", "up")
                hosts.resolve(host)
            yield hosts
        finally:
            for name in [f"{tag}{NAMES[host]}" for host in range(count)] + [bridge]:
                subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def missing() -> str:
    """Return why no hosts can be made here; empty where they can."""
    for program in ("ip", "nft", "unshare"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    name = f"ddtry{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True)
    subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
    return "no network namespaces can be made here" if done.returncode else ""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
