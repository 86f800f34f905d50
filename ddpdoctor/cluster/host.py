"""What a host says of itself to the others, as plain data; what others say is read with suspicion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ddpdoctor.cluster.lines import HOST
from ddpdoctor.host.backend_network import gloo_address, nccl_interface
from ddpdoctor.host.variables import CUDA, NCCL, TORCH

if TYPE_CHECKING:
    from ddpdoctor.cluster.launch import Launch
    from ddpdoctor.host.facts import Facts


LONGEST = 4096  # characters of a text
MOST = 2000  # entries of a mapping
LATEST = 1e12  # seconds

# They name what each host has of its own: an interface, a file, a GPU.
OWN_TO_A_HOST = frozenset(
    """
    CUDA_HOME CUDA_MODULE_LOADING CUDA_PATH CUDA_VISIBLE_DEVICES GLOO_SOCKET_IFNAME NCCL_CONF_FILE NCCL_DEBUG
    NCCL_DEBUG_FILE NCCL_DEBUG_SUBSYS NCCL_DEBUG_TIMESTAMP_FORMAT NCCL_DEBUG_TIMESTAMP_LEVELS NCCL_GRAPH_DUMP_FILE
    NCCL_GRAPH_FILE NCCL_HOSTID NCCL_IB_HCA NCCL_OOB_NET_IFNAME NCCL_RAS_ADDR NCCL_SOCKET_IFNAME NCCL_TOPO_DUMP_FILE
    NCCL_TOPO_FILE NVIDIA_DRIVER_CAPABILITIES NVIDIA_VISIBLE_DEVICES PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
    TORCH_CPP_LOG_LEVEL TORCH_LOGS TORCH_NCCL_DEBUG_INFO_PIPE_FILE TORCH_NCCL_DEBUG_INFO_TEMP_FILE
    TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN TORCH_SHOW_CPP_STACKTRACES TP_SOCKET_IFNAME MKL_NUM_THREADS
    OMP_NUM_THREADS
    """.split()
)
"""What can differ from host to host without any harm: devices, interfaces, folders, logs, each process's own memory."""


class ProtocolError(ValueError):
    """What came over the network is nothing that a host of this program says; the text tells what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host, in its own words.

    ``gloo`` and ``nccl`` are the addresses that these would use there, each with its interface; empty where they have
    none, or are not used. ``port`` is the master's, ``data_port`` that of the listener for the matrix. ``clock`` is in
    seconds since 1970. ``code`` holds a hash for each file of the training that was named, ``data`` the sizes of the
    files of its data. ``save`` is the folder that it saves to, ``save_mark`` the name of the file that this host has
    written there, ``save_problem`` why it could not; ``sharded`` the line that imports what saves from every rank.
    ``reads`` are the variables that these files read, with their values, ``settings`` the plain values of the script's
    options and of its files of settings, ``packages`` the versions of what these files import. ``master_at`` are the
    addresses that the master's name leads to here, with spaces between them.
    """

    name: str
    launcher: str = ""
    by: str = ""
    nodes: int | None = None
    node: int | None = None
    rank: int | None = None
    world_size: int | None = None
    master: str = ""
    port: int = 0
    gloo: str = ""
    gloo_interface: str = ""
    nccl: str = ""
    nccl_interface: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    data_port: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    clock: float = 0.0
    data: Mapping[str, str] = field(default_factory=dict)
    data_folder: str = ""
    data_problem: str = ""
    save: str = ""
    save_mark: str = ""
    save_problem: str = ""
    sharded: str = ""
    master_at: str = ""
    rdzv_id: str = ""
    rdzv_backend: str = ""
    reads: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """How the launch counts it, with its name: ``host 1 (b)``."""
        return f"host {self.name}" if self.node is None else f"host {self.node} ({self.name})"

    def interface_of(self, address: str) -> str:
        """Return the interface that has an address; empty where none has."""
        return self.addresses.get(address, "")


def describe(facts: Facts, launch: Launch, code: Mapping[str, str], data_port: int, clock: float) -> Host:
    """Return what this host is."""
    network = facts.network
    addresses = {address: each.name for each in network.interfaces for address in each.addresses}
    gloo = gloo_address(network, facts.environ.get("GLOO_SOCKET_IFNAME")) or ""
    nccl = nccl_interface(network, facts.environ.get("NCCL_SOCKET_IFNAME")) if facts.gpus.devices else None
    return Host(
        name=network.hostname,
        launcher=launch.launcher,
        by=launch.by,
        nodes=launch.nodes,
        node=launch.node,
        rank=launch.rank,
        world_size=launch.world_size,
        master=launch.master,
        port=launch.port,
        gloo=gloo,
        gloo_interface=addresses.get(gloo, ""),
        nccl=next(iter(nccl.addresses), "") if nccl else "",
        nccl_interface=nccl.name if nccl else "",
        addresses=dict(list(addresses.items())[:64]),
        data_port=data_port,
        versions=_versions(facts),
        variables={
            name: facts.environ[name][:LONGEST]
            for name in sorted({*TORCH, *NCCL, *CUDA} - OWN_TO_A_HOST)
            if name in facts.environ
        },
        code=code,
        clock=clock,
        master_at=" ".join(network.resolve(launch.master).addresses) if launch.master else "",
        rdzv_id=launch.rdzv_id,
        rdzv_backend=launch.rdzv_backend,
    )


def _versions(facts: Facts) -> dict[str, str]:
    found = facts.versions
    python = ".".join(found.python.split(".")[:2])
    named = {
        "Python": python,
        "torch": found.torch,
        "CUDA of torch": found.torch_cuda,
        "ROCm of torch": found.torch_hip,
    }
    nccl = {"NCCL": ", ".join(sorted({each.version for each in found.nccl}))}
    driver = {"NVIDIA driver": getattr(facts.gpus, "driver", None)} if facts.gpus.devices else {}
    return {name: str(value) for name, value in {**named, **nccl, **driver}.items() if value}


def host_line(host: Host, tries: list[str]) -> str:
    """Return the line by which ``ddpdoctor explain`` puts the logs of hosts together that did not meet."""
    return HOST + json.dumps({"host": as_data(host), "tries": tries}, sort_keys=True)


def as_data(host: Host) -> dict[str, Any]:
    """Return a host as JSON holds it."""
    return asdict(host)


def host_from(data: object) -> Host:
    """Read a host from what came over the network.

    Raises:
        ProtocolError: it is none.
    """
    if not isinstance(data, dict):
        raise ProtocolError("a host is an object")
    known = {each.name: str(each.type) for each in fields(Host)}
    if unknown := data.keys() - known.keys():
        raise ProtocolError(f"a host has no {min(map(str, unknown))[:40]}")
    return Host(
        **{name: _valid(name, known[name], value) for name, value in data.items() if name in known} | _named(data)
    )


def _named(data: dict[str, Any]) -> dict[str, str]:
    return {} if "name" in data else {"name": "?"}


def _short_texts(value: dict[object, object]) -> bool:
    return all(isinstance(text, str) and len(text) <= LONGEST for pair in value.items() for text in pair)


def _valid(name: str, kind: str, value: object) -> Any:
    if kind == "str" and isinstance(value, str) and len(value) <= LONGEST:
        return value
    if kind.startswith("int") and type(value) is int and 0 <= value < 1 << 31:
        return value
    if kind == "int | None" and value is None:
        return None
    if kind == "float" and isinstance(value, (int, float)) and abs(value) < LATEST:
        return float(value)
    if kind.startswith("Mapping") and isinstance(value, dict) and len(value) <= MOST and _short_texts(value):
        return value
    raise ProtocolError(f"{name} of a host is no {kind}")
