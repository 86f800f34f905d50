"""The environment that a job's ranks are given."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import psutil

# Judged by checks of their own; a job about something else must not stumble over them.
LEFT_OUT = (
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCH_DISTRIBUTED_DEBUG",
    "WORLD_SIZE",
)


def loopback_name() -> str | None:
    """Return the name of the loopback interface; None where it has no address."""
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.family == socket.AF_INET and entry.address.startswith("127.") for entry in entries):
            return name
    return None


def server_environ(environ: Mapping[str, str], loopback: str | None) -> dict[str, str]:
    """Return the environment of the ranks: the user's, less what checks of their own judge."""
    kept = {name: value for name, value in environ.items() if name not in LEFT_OUT}
    # One OpenMP thread for each rank is what torchrun sets; a thread pool in the server would not survive a fork.
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**threads, **kept, "GLOO_SOCKET_IFNAME": loopback or "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
