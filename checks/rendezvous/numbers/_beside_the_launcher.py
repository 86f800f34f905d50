"""RANK=0 in a process that its launcher, Open MPI, MPICH or Slurm, has started as another one of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LAUNCHERS = (
    ("Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), "$OMPI_COMM_WORLD_RANK", "$OMPI_COMM_WORLD_SIZE"),
    ("MPICH or Intel MPI", "PMI_RANK", ("PMI_SIZE",), "$PMI_RANK", "$PMI_SIZE"),
    ("Slurm", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "$SLURM_PROCID", "$SLURM_NTASKS"),
)
"""A launcher, its variable of the rank, those of how many there are, and how a shell reads both in the new process."""
TORCHRUN = "TORCHELASTIC_RUN_ID"


class Beside(NamedTuple):
    """The launcher, its variables and their values; what a shell makes RANK and WORLD_SIZE of."""

    launcher: str
    rank_name: str
    rank: int
    size_name: str
    size: int
    exports: str


def beside_the_launcher(environ: Mapping[str, str]) -> Beside | None:
    """Return what the launcher has told this process; None where torchrun runs below it, which numbers ranks itself."""
    if TORCHRUN in environ:
        return None
    for launcher, rank, sizes, *read in LAUNCHERS:
        size = next((each for each in sizes if environ.get(each, "").isdigit()), "")
        theirs = environ.get(rank, "")
        if size and theirs.isdigit() and int(theirs) < int(environ[size]):
            exports = f"sh -c 'RANK={read[0]} WORLD_SIZE={read[1]} exec python train.py'"
            return Beside(launcher, rank, int(theirs), size, int(environ[size]), exports)
    return None
