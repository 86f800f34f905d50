"""Where gloo would tell the ranks of other hosts to come, if that is an address that leads them to themselves."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil

from ddpdoctor.host.backend_network import gloo_address
from ddpdoctor.host.network import gather_network, is_loopback
from ddpdoctor.watch.events import Joined, Joining
from ddpdoctor.watch.training import Training

SETTING = "GLOO_SOCKET_IFNAME"
OTHERS = ("nccl", "mpi", "ucc", "xccl", "hccl")  # a group of these alone makes nothing of gloo


def on_loopback(pids: Iterable[int], training: Training) -> str:
    """Return by what gloo takes a loopback address in a rank that waits for other hosts; empty where it takes none."""
    joining = [each for pid in pids for each in training.of(Joining, pid=pid) if not training.of(Joined, pid=pid)]
    for each in joining:
        several = each.local_size is not None and each.local_size < each.world_size
        if not several or each.backend.lower() in OTHERS or _meets_here(each.address):
            continue
        with suppress(psutil.Error):
            told = psutil.Process(each.pid).environ().get(SETTING, "")
            network = gather_network()
            address = gloo_address(network, told or None)
            if address is not None and is_loopback(address):
                resolved = ", ".join(network.own.addresses) or "nothing"
                return f"{SETTING}={told}" if told else f"the host name {network.hostname} resolves to {resolved}"
    return ""


def _meets_here(address: str) -> bool:
    """Whether the ranks meet at a loopback address: then they are all on this host."""
    host = address.rpartition("//")[2].rpartition(":")[0].strip("[]")
    return host in {"", "localhost"} or is_loopback(host)
