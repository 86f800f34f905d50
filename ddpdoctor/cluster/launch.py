"""What a launcher tells this process: which host of how many, and where the master is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ddpdoctor.cluster.launchers import LAUNCHERS, Launcher

DEFAULT_PORT = 29500  # torchrun's
TOKEN = "DDPDOCTOR_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class Launch:
    """What the environment says; None, and an empty text, where it does not say it.

    ``by`` names the variables that show that there are several hosts. ``job`` is what only this job's processes know.
    ``agent_store``: torchrun holds the master's port, with a store behind it. ``rdzv_id`` and ``rdzv_backend``: what a
    torchrun is told that is still to be started.
    """

    launcher: str = ""
    by: str = ""
    nodes: int | None = None
    node: int | None = None
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    master: str = ""
    port: int = DEFAULT_PORT
    job: str = ""
    agent_store: bool = False
    rdzv_id: str = ""
    rdzv_backend: str = ""

    @property
    def several(self) -> bool:
        """Whether the launch says that several hosts take part."""
        return self.nodes is not None and self.nodes > 1


def read_launch(environ: Mapping[str, str]) -> Launch:
    """Read the environment of a process that a launcher started."""
    launcher = next((each for each in LAUNCHERS if all(environ.get(sign) for sign in each.signs)), None)
    if launcher is None:
        return Launch(master=environ.get("MASTER_ADDR", ""), port=_port(environ, ""))
    rank, world_size = _number(environ, launcher.rank), _number(environ, launcher.world_size)
    nodes, node, by = _nodes(environ, launcher)
    return Launch(
        launcher.name,
        by,
        nodes,
        node,
        rank,
        world_size,
        _number(environ, launcher.local_rank),
        _master(environ, launcher),
        _port(environ, launcher.port),
        " ".join(environ[name] for name in launcher.job if name in environ),
        environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def several_hosts(environ: Mapping[str, str]) -> str:
    """Return by which variable the environment shows that several hosts take part; empty when none does."""
    if (launch := read_launch(environ)).several:
        return launch.by
    for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "NNODES", "PET_NNODES", "GROUP_WORLD_SIZE"):
        value = environ.get(name, "").rpartition(":")[2]
        if _parsed(value) > 1:
            return f"{name}={environ[name]}"
    world, local = _parsed(environ.get("WORLD_SIZE", "")), _parsed(environ.get("LOCAL_WORLD_SIZE", ""))
    return f"WORLD_SIZE={world} with LOCAL_WORLD_SIZE={local}" if world > local > 0 else ""


def _nodes(environ: Mapping[str, str], launcher: Launcher) -> tuple[int | None, int | None, str]:
    """Return how many hosts there are, which one this is, and the variable that says so."""
    if launcher.name == "SageMaker":
        hosts = _listed(environ["SM_HOSTS"])
        current = environ["SM_CURRENT_HOST"]
        return len(hosts) or None, hosts.index(current) if current in hosts else None, f"SM_HOSTS={environ['SM_HOSTS']}"
    value = environ.get(launcher.nodes, "").rpartition(":")[2]  # torchrun's MIN:MAX
    if nodes := _parsed(value):
        return nodes, _node(environ, launcher, nodes), f"{launcher.nodes}={environ[launcher.nodes]}"
    world, local = _number(environ, launcher.world_size), _number(environ, launcher.local_world_size)
    rank = _number(environ, launcher.rank)
    if not world or (not local and "KUBERNETES_SERVICE_HOST" not in environ):
        return None, None, ""
    if launcher.node and (node := _number(environ, launcher.node)) is not None:
        return (
            -(-world // (local or 1)),
            node,
            f"{launcher.world_size}={world} with {launcher.local_world_size}={local}",
        )
    local = local or 1  # the training operator starts one process a pod, and counts pods
    nodes, at = -(-world // local), _number(environ, launcher.local_rank)
    by = f"{launcher.world_size}={world}" + (f" with {launcher.local_world_size}={local}" if local > 1 else "")
    if rank is not None and at is not None and (rank - at) % local:  # ranks were dealt out host by host: --map-by node
        return nodes, (rank - at * nodes) % nodes, by
    return nodes, None if rank is None else rank // local, by


def _node(environ: Mapping[str, str], launcher: Launcher, nodes: int) -> int | None:
    """Return which host this is; by its rank, where nothing says it and each host has as many."""
    if launcher.node:
        return _number(environ, launcher.node)
    rank, world = _number(environ, launcher.rank), _number(environ, launcher.world_size)
    return None if rank is None or not world or world % nodes else rank // (world // nodes)


def _master(environ: Mapping[str, str], launcher: Launcher) -> str:
    if environ.get("MASTER_ADDR"):
        return environ["MASTER_ADDR"]
    if launcher.name == "Slurm":
        return first_host(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", ""))
    if launcher.name == "SageMaker":
        return next(iter(_listed(environ["SM_HOSTS"])), "")
    if azure := environ.get("AZ_BATCH_MASTER_NODE") or environ.get("AZ_BATCHAI_MPI_MASTER_NODE"):
        return azure.partition(":")[0]
    if told := (environ.get(launcher.master) or environ.get("PET_MASTER_ADDR", "")).split():
        return told[0]
    hosts = environ.get("LSB_MCPU_HOSTS", "").split()[::2]
    if launcher.name == "jsrun":
        hosts = hosts[1:] or hosts  # the first one is the batch host
    listed = next(iter(hosts), "") or first_host(environ.get("SLURM_JOB_NODELIST", ""))  # mpirun begins there, too
    return listed or environ.get("PET_RDZV_ENDPOINT", "").rpartition(":")[0]


def first_host(nodes: str) -> str:
    """Return the first host of Slurm's list: ``gpu[003-005,9],login`` begins with gpu003."""
    first = re.match(r"([^,\[]*)(?:\[([^,\]\-]+)[^\]]*\])?([^,\[]*)", nodes)
    return "".join(part or "" for part in first.groups()) if first else ""


def _port(environ: Mapping[str, str], of_launcher: str) -> int:
    value = _parsed(environ.get("MASTER_PORT") or environ.get(of_launcher) or environ.get("PET_MASTER_PORT", ""))
    return value if 0 < value < 1 << 16 else DEFAULT_PORT


def _listed(text: str) -> list[str]:
    try:
        value = json.loads(text)
    except ValueError:
        return []
    return [str(each) for each in value] if isinstance(value, list) else []


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None  # noqa: PLR2004 - no rank is


def _parsed(value: str) -> int:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0  # noqa: PLR2004 - as above
