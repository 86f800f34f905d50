"""What a launcher has told a process of its rank, read from the environment that it was started with.

Sources: torch.distributed.run (2.2 to 2.13); Open MPI, "Environment variables" (4 and 5); MPICH's Hydra; srun(1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SETS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
)
"""By launcher what it names the rank, the world's size, the rank on this host, and how many ranks this host has."""
RUNS = (
    ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    ("OMPI_MCA_ess_base_jobid",),
    ("PMIX_NAMESPACE",),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
)
"""What tells one start of a launcher from another."""
READ = frozenset(
    {name for each in (*SETS, *RUNS) for name in each if name}
    | {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "TORCH_FR_DUMP_TEMP_FILE"}
    | {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "HOME", "XDG_CACHE_HOME"}
)
"""All that is read of another process's environment: the rest is nobody's business."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A rank as its launcher has told it; -1 where nothing was said of that.

    ``address`` is where the ranks meet; ``run`` names this start of the launcher.
    """

    rank: int
    world_size: int
    local_rank: int = -1
    local_size: int = -1
    address: str = ""
    run: str = ""

    @property
    def first_here(self) -> int:
        """The number of this host's first rank, where all of a host's are numbered in a row; -1 where unknown."""
        return self.rank - self.local_rank if self.local_rank >= 0 else -1


def identity(environ: Mapping[str, str]) -> Identity | None:
    """Return what a process was told; None where no launcher has told it a rank and the size of the world."""
    for rank, size, local_rank, local_size in SETS:
        number, world = _number(environ, rank), _number(environ, size)
        if 0 <= number < world:
            return Identity(
                number, world, _number(environ, local_rank), _number(environ, local_size), _address(environ),
                _run(environ),
            )  # fmt: skip
    return None


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else -1


def _address(environ: Mapping[str, str]) -> str:
    host, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    return f"{host}:{port}" if host and port else ""


def _run(environ: Mapping[str, str]) -> str:
    for names in RUNS:
        if environ.get(names[0]):
            return ".".join(environ.get(name, "") for name in names)
    return ""
