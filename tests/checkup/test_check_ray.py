"""The check on each node of a Ray cluster: run by night, with the package itself."""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers import JOBS, TORCHRUN
from namespaces import finish, network

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]
pytest.importorskip("ray", reason="needs ray, of the extra 'frameworks'")

RAY = str(TORCHRUN.with_name("ray"))
OWN_FOLDER = 'mkdir -p /tmp/ray && mount -t tmpfs ray /tmp/ray && exec "$@"'
CLOSED = (
    "nft add table ip t; nft 'add chain ip t i { type filter hook input priority 0; policy accept; }'; "
    "nft add rule ip t i iifname eth0 ct state new tcp dport 32000-65535 drop"
)
PORTS = (
    "--min-worker-port=20000",
    "--max-worker-port=20400",
    "--node-manager-port=20500",
    "--object-manager-port=20501",
)


def test_each_node_of_a_cluster_is_checked(tmp_path: Path) -> None:
    """Two nodes, as ``ray start`` makes them; a good cluster is told good, and a node with a firewall is named."""
    with network(2) as hosts:
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # of this cluster alone
        environ = hosts.environ(0, dict.fromkeys(("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK")) | token)
        common = ("--num-cpus=1", "--disable-usage-stats", "--block", *PORTS)
        starts = (
            ("--head", "--node-ip-address=10.77.0.1", "--port=6379", "--include-dashboard=false"),
            ("--address=10.77.0.1:6379", "--node-ip-address=10.77.0.2"),
        )
        running = []
        try:
            for host, words in enumerate(starts):
                said = tmp_path / f"ray{host}"
                command = ("sh", "-c", OWN_FOLDER, "sh", RAY, "start", *words, *common)
                with said.open("w") as log:
                    running.append(hosts.start(host, *command, environ=environ, output=log))
                until = time.monotonic() + 90
                while "Ray runtime started" not in said.read_text() and time.monotonic() < until:
                    time.sleep(0.2)
                assert "Ray runtime started" in said.read_text(), said.read_text()
            within = ("nsenter", "--mount", "--net", "--uts", "-t", str(_inner(running[0].pid)), "--")
            check = (*within, sys.executable, "-m", "ddpdoctor", "check", "--ray", "--only", "network,rendezvous")
            skip = ("--skip", JOBS)
            good = finish(hosts.start(0, *check, *skip, environ=environ))
            hosts.on(1, CLOSED)
            closed = finish(hosts.start(0, *check, *skip, environ=environ))
        finally:
            for each in running:
                for process in (*psutil.Process(each.pid).children(recursive=True), psutil.Process(each.pid)):
                    process.kill()
                finish(each)

    assert good.status == 0, good.said
    assert "2 of 2 hosts met, and each reaches each other" in good.out
    assert closed.status == 1, closed.said
    assert "host 1 (b) lets no connection of other hosts in" in closed.out


def _inner(pid: int) -> int:
    """Return the last of the processes that this one has become: the one within the namespaces."""
    return next((each.pid for each in psutil.Process(pid).children() if "raylet" not in each.name()), pid)
