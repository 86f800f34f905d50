"""What a launcher tells this process: which host of how many, and where the master is.

Sources: torch/distributed/elastic/agent/server/local_elastic_agent.py; srun(1), "OUTPUT ENVIRONMENT VARIABLES"; Open
MPI's FAQ, "What environment variables are set"; hydra's proxy of MPICH 4 (4.0.2 was run: it names no job); PMIx 4; bsub
and jsrun of LSF; kubeflow's training operator, pytorch/envvar.go; sagemaker-training-toolkit,
ENVIRONMENT_VARIABLES.md; AzureML's "distributed GPU training", and for its MPI jobs azureml's adapters, which read the
master from AZ_BATCH_MASTER_NODE, or from AZ_BATCHAI_MPI_MASTER_NODE; deepspeed, launch.py; horovod/runner/gloo_run.py;
lightning/fabric/plugins/environments/lsf.py for jsrun; ray/train/torch/config.py, `_set_torch_distributed_env_vars`.
PMIx alone sets a rank and the name of the job, and no size (openpmix/prrte): then --expect says how many.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PORT = 29500  # torchrun's


@dataclass(frozen=True, slots=True)
class Launcher:
    """The variables that a launcher sets, by what they mean; ``signs`` are those that only it sets."""

    name: str
    signs: tuple[str, ...]
    nodes: str = ""
    node: str = ""
    rank: str = "RANK"
    world_size: str = "WORLD_SIZE"
    local_rank: str = "LOCAL_RANK"
    local_world_size: str = "LOCAL_WORLD_SIZE"
    job: tuple[str, ...] = ()


LAUNCHERS = (
    Launcher(
        "torchrun", ("TORCHELASTIC_RUN_ID",), "GROUP_WORLD_SIZE", "GROUP_RANK", job=("TORCHELASTIC_RUN_ID",)
    ),
    Launcher("deepspeed", ("CROSS_SIZE", "LOCAL_SIZE"), "CROSS_SIZE", "CROSS_RANK", local_world_size="LOCAL_SIZE"),
    Launcher("by hand", ("NNODES", "NODE_RANK"), "NNODES", "NODE_RANK"),
    Launcher("Ray Train", ("ACCELERATE_TORCH_DEVICE", "NODE_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"), "", "NODE_RANK"),
    Launcher("the training operator", ("PET_NNODES", "PET_NODE_RANK"), "PET_NNODES", "PET_NODE_RANK"),
    Launcher("SageMaker", ("SM_HOSTS", "SM_CURRENT_HOST"), job=("TRAINING_JOB_NAME",)),
    Launcher("AzureML", ("AZUREML_RUN_ID", "NODE_RANK"), "AZUREML_NODE_COUNT", "NODE_RANK", job=("AZUREML_RUN_ID",)),
    Launcher(
        "Slurm", ("SLURM_STEP_ID", "SLURM_NODEID", "SLURM_PROCID"), "SLURM_STEP_NUM_NODES", "SLURM_NODEID",
        "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
    Launcher(
        "Horovod", ("HOROVOD_CROSS_SIZE",), "HOROVOD_CROSS_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_RANK", "HOROVOD_SIZE",
        "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
    ),
    Launcher(
        "Open MPI", ("OMPI_COMM_WORLD_RANK",), "", "", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Launcher(
        "jsrun", ("JSM_NAMESPACE_RANK",), "", "", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
        "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE", ("LSB_JOBID",),
    ),
    Launcher(
        "MPICH", ("PMI_RANK", "MPI_LOCALNRANKS"), "", "", "PMI_RANK", "PMI_SIZE",
        "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
    ),
    Launcher("PMIx", ("PMIX_RANK", "PMIX_NAMESPACE"), rank="PMIX_RANK", job=("PMIX_NAMESPACE",)),
    Launcher("by hand", ("WORLD_SIZE", "RANK")),
)  # fmt: skip
"""The innermost launcher first: torchrun that srun starts is torchrun. The first whose signs are all set is it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What the environment says; None, and an empty text, where it does not say it.

    ``by`` names the variables that show that there are several hosts. ``job`` is what only this job's processes know.
    ``agent_store``: torchrun holds the master's port, with a store behind it. ``rdzv_id``: what a torchrun is told that
    is still to be started.
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

    @property
    def several(self) -> bool:
        """Whether the launch says that several hosts take part."""
        return self.nodes is not None and self.nodes > 1


def read_launch(environ: Mapping[str, str]) -> Launch:
    """Read the environment of a process that a launcher started."""
    launcher = next((each for each in LAUNCHERS if all(environ.get(sign) for sign in each.signs)), None)
    if launcher is None:
        return Launch(master=environ.get("MASTER_ADDR", ""), port=_port(environ))
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
        _port(environ),
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
        return nodes, _number(environ, launcher.node), f"{launcher.nodes}={environ[launcher.nodes]}"
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
    by = f"{launcher.world_size}={world}" + (f" with {launcher.local_world_size}={local}" if local > 1 else "")
    return -(-world // local), None if rank is None else rank // local, by


def _master(environ: Mapping[str, str], launcher: Launcher) -> str:
    if environ.get("MASTER_ADDR"):
        return environ["MASTER_ADDR"]
    if launcher.name == "Slurm":
        return first_host(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", ""))
    if launcher.name == "SageMaker":
        return next(iter(_listed(environ["SM_HOSTS"])), "")
    if azure := environ.get("AZ_BATCH_MASTER_NODE") or environ.get("AZ_BATCHAI_MPI_MASTER_NODE"):
        return azure.partition(":")[0]
    if launcher.name == "jsrun":
        hosts = environ.get("LSB_MCPU_HOSTS", "").split()[::2]
        return next(iter(hosts[1:] or hosts), "")  # the first one is the batch host
    return environ.get("PET_MASTER_ADDR") or environ.get("PET_RDZV_ENDPOINT", "").rpartition(":")[0]


def first_host(nodes: str) -> str:
    """Return the first host of Slurm's list: ``gpu[003-005,9],login`` begins with gpu003."""
    first = re.match(r"([^,\[]*)(?:\[([^,\]\-]+)[^\]]*\])?([^,\[]*)", nodes)
    return "".join(part or "" for part in first.groups()) if first else ""


def _port(environ: Mapping[str, str]) -> int:
    value = _parsed(environ.get("MASTER_PORT") or environ.get("PET_MASTER_PORT", ""))
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
