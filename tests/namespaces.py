"""Hosts in network namespaces: each with its own interface, host name and hosts file, on one bridge."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

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
    _warmed: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

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

    def start(
        self,
        host: int,
        *command: str,
        environ: Mapping[str, str] | None = None,
        stdin: int | None = None,
        output: IO[str] | None = None,
        apart: bool = False,
    ) -> subprocess.Popen[str]:
        """Start a command on a host; what it says goes to ``output``, where that is given.

        ``apart``: it and what it starts see no other processes, and are killed with the one that is returned.
        """
        inner = 'mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@"'
        return subprocess.Popen(
            [
                *("ip", "netns", "exec", self._netns(host), "unshare", "--uts", "--mount"),
                *(("--pid", "--fork", "--mount-proc", "--kill-child") if apart else ()),
                *("sh", "-c", inner, "sh", str(self.folder / f"hosts.{host}"), NAMES[host], *command),
            ],
            stdin=stdin, stdout=output or subprocess.PIPE, stderr=output or subprocess.PIPE, text=True,
            start_new_session=True,
            env=self.environ(host) if environ is None else dict(environ),
        )  # fmt: skip

    def check(
        self, *args: str, each: Mapping[int, Mapping[str, str | None]] | None = None, hosts: Iterable[int] | None = None
    ) -> list[Done]:
        """Run ``ddpdoctor check`` on all hosts at once, as by hand; ``each`` changes a host's variables."""
        wanted = list(range(self.count) if hosts is None else hosts)
        started = time.monotonic()
        for host in wanted:
            environ = self.environ(host, (each or {}).get(host))
            stdin = self._warm(host).stdin
            assert stdin is not None
            stdin.write(json.dumps({"args": ["check", *args], "environ": environ}) + "\n")
            stdin.flush()
        return [self._answer(host, started) for host in wanted]

    def environ(self, host: int, more: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """Return the variables of a host that is started by hand; None takes one away."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MASTER_", "RANK", "WORLD"))}
        by_hand = {"MASTER_ADDR": self.address(0), "MASTER_PORT": "29500", "NNODES": str(self.count)}
        merged = {**kept, "COLUMNS": "1000", **by_hand, "NODE_RANK": str(host), **(more or {})}
        return {name: value for name, value in merged.items() if value is not None}

    def close(self) -> None:
        """End the processes that wait for commands."""
        for process in self._warmed.values():
            process.communicate(timeout=20)

    def _warm(self, host: int) -> subprocess.Popen[str]:
        if host not in self._warmed:
            script = str(Path(__file__).with_name("warm_host.py"))
            self._warmed[host] = self.start(
                host, sys.executable, script, environ=dict(os.environ), stdin=subprocess.PIPE
            )
        return self._warmed[host]

    def _answer(self, host: int, started: float) -> Done:
        process = self._warm(host)
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        status, out, err = json.loads(line)
        return Done(status, out, err, time.monotonic() - started)

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
            hosts.close()
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
