"""The settings of communication that ``bisect`` changes: what is set here taken back, and what else can be set."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.shell import shell_quote

if TYPE_CHECKING:
    from ddpdoctor.host.network import Network

PREFIXES = ("FI_", "GLOO_", "NCCL_", "TORCH_GLOO_", "TORCH_NCCL_", "UCC_", "UCX_")
NAMES = """
CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING GOMP_CPU_AFFINITY KMP_AFFINITY KMP_BLOCKTIME MKL_NUM_THREADS
OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OMP_WAIT_POLICY TORCH_CPP_LOG_LEVEL TORCH_DISTRIBUTED_DEBUG TP_SOCKET_IFNAME
USE_LIBUV
""".split()
DEFAULT_COST = "what it was set for: torch, gloo and NCCL take their default"
TAKEN_BACK = {
    "GLOO_SOCKET_IFNAME": "nothing, where the host's name leads to the right interface: gloo takes that one",
    "NCCL_SOCKET_IFNAME": "nothing, where NCCL finds the right interface: it takes the first that is not loopback",
    "TORCH_DISTRIBUTED_DEBUG": "torch's own comparison of collectives and names of unused parameters",
    "CUDA_LAUNCH_BLOCKING": "nothing: kernels no longer wait for each other, and errors of CUDA name another line",
    "OMP_NUM_THREADS": "nothing where the ranks have cores of their own; torchrun sets 1",
}
ONE_HOST = "ranks of other hosts cannot join: it is for one host only"


@dataclass(frozen=True, slots=True)
class Change:
    """One variable set to a value, or taken away (None), and what that costs."""

    variable: str
    value: str | None
    cost: str

    def __str__(self) -> str:
        """Return it as a sentence has it."""
        return f"{self.variable}={self.value}" if self.value is not None else f"without {self.variable}"

    @property
    def command(self) -> str:
        """Return the line for a shell."""
        if self.value is None:
            return f"unset {self.variable}"
        return f"export {self.variable}={shell_quote(self.value)}"


@dataclass(frozen=True, slots=True)
class Situation:
    """What decides which settings are worth a try; ``ranks`` is 0 where no rank was seen."""

    environ: Mapping[str, str]
    backend: str
    ranks: int
    one_host: bool
    cores: int


def taken_back(environ: Mapping[str, str]) -> tuple[Change, ...]:
    """Return for each setting of communication that is set here that it is taken away."""
    found = sorted(name for name in environ if name.startswith(PREFIXES) or name in NAMES)
    return tuple(Change(name, None, TAKEN_BACK.get(name, DEFAULT_COST)) for name in found)


def offers(situation: Situation, network: Network) -> list[tuple[Change, ...]]:
    """Return sets of changes, each of which can be made at once, the one that costs least first."""
    sets = []
    for interface in _interfaces(network, one_host=situation.one_host):
        changes = [*_over(interface, situation), *_meeting(situation)]
        changes += [*_without_shortcuts(situation), *_threads(situation)]
        changed = {each.variable for each in changes}
        undone = [each for each in taken_back(situation.environ) if each.variable not in changed]
        sets.append(tuple(each for each in (*undone, *changes) if situation.environ.get(each.variable) != each.value))
    return sets


def applied(environ: Mapping[str, str], changes: Iterable[Change]) -> dict[str, str]:
    """Return the environment with the changes made."""
    changed = dict(environ)
    for each in changes:
        if each.value is None:
            changed.pop(each.variable, None)
        else:
            changed[each.variable] = each.value
    return changed


def _interfaces(network: Network, *, one_host: bool) -> list[str]:
    """List interfaces that can carry: those that reach other hosts first; loopback for one host alone."""
    usable = [each for each in network.interfaces if each.up and each.addresses and not each.virtual]
    outer = [each.name for each in usable if not each.loopback]
    return outer + [each.name for each in usable if each.loopback and one_host]


def _over(interface: str, situation: Situation) -> list[Change]:
    cost = ONE_HOST if interface == "lo" else f"nothing, where other hosts are reached over {interface} as well"
    found = [Change("GLOO_SOCKET_IFNAME", interface, cost)]
    if "nccl" in situation.backend:
        found.append(Change("NCCL_SOCKET_IFNAME", f"={interface}", cost))
    return found


def _meeting(situation: Situation) -> list[Change]:
    found = [
        Change("USE_LIBUV", "0", "nothing below some hundred ranks: the store of torch 2.3 and older, which is slower")
    ]
    if situation.one_host and "MASTER_ADDR" in situation.environ:
        found.append(Change("MASTER_ADDR", "127.0.0.1", ONE_HOST))
    if situation.one_host and "MASTER_PORT" in situation.environ:
        found.append(Change("MASTER_PORT", _free_port(), "nothing: any port that no other process has will do"))
    return found


def _without_shortcuts(situation: Situation) -> list[Change]:
    """Return what makes NCCL take the plainest way; the tables of NCCL's documentation say what each carries."""
    if "nccl" not in situation.backend:
        return []
    return [
        Change("NCCL_IB_DISABLE", "1", "InfiniBand and RoCE: hosts then exchange over TCP, several times slower"),
        Change(
            "NCCL_NET_PLUGIN", "none", "the network plug-in of the cluster: hosts exchange over what NCCL has itself"
        ),
        Change("NCCL_P2P_DISABLE", "1", "NVLink and PCIe peer access: GPUs of a host then exchange through its memory"),
        Change("NCCL_SHM_DISABLE", "1", "shared memory: ranks of a host then exchange over the network interface"),
        Change("NCCL_NVLS_ENABLE", "0", "NVLink SHARP: all_reduce within a host of the NVSwitch kind is slower"),
        Change("NCCL_CUMEM_ENABLE", "0", "nothing but the features of NCCL that need it, such as NVLink SHARP"),
        Change("NCCL_SOCKET_FAMILY", "AF_INET", "IPv6 between the ranks"),
    ]


def _threads(situation: Situation) -> list[Change]:
    if not situation.ranks:
        return []
    threads = max(1, situation.cores // situation.ranks)
    return [
        Change("OMP_NUM_THREADS", str(threads), "nothing where all ranks compute at once: as many as there are cores")
    ]


def _free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])
