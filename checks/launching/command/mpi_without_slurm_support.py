"""srun starts the ranks, and the MPI library that they load cannot talk to Slurm.

## What happens

A program that initialises MPI under `srun` has to be given its rank by Slurm, over PMI or PMIx. Where Open MPI was
built without it, `MPI_Init` ends each rank before the training begins: "The application appears to have been direct
launched using "srun", but OMPI was not built with SLURM's PMI support". That happens to trainings that use no MPI of
their own, too: `import mpi4py` is enough, and DeepSpeed, Lightning's and NeMo's plug-ins look for it.

## How to be sure

`srun --mpi=list` names what Slurm offers, `ompi_info | grep -i pmix` what Open MPI was built with; the same script runs
under `mpirun` inside of the allocation.

## How to mend it

Start with `srun --mpi=pmix` where both have it, or with `mpirun` inside of the allocation. A training that
communicates by NCCL or gloo needs no MPI: start it with torchrun, and remove mpi4py from its environment.

## Versions and sources

Holds for Open MPI 2 to 5 and Slurm 16.05 and later, whatever the torch. Sources: Open MPI,
orte/mca/ess/pmi (help-ess-base.txt, "slurm-error"); Slurm, "MPI Users Guide".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP482", Severity.ERROR)


SRUN = r"\bsrun: |\bslurmstepd: "


@log_pattern(r"An error occurred in (?P<call>MPI_Init\w*)", context=(SRUN,))
def at_its_start(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """MPI ends the process where it cannot start, and says no more."""
    slurm = log.first(SRUN)
    yield Finding(
        f"{match['call']} ended the rank: MPI cannot start in a process that "
        + ("srun" if slurm else "another launcher than mpirun")
        + " started",
        (record.proof(match, f"{match['call']} returns"), *((slurm[0].proof(slurm[1]),) if slurm else ())),
        Fix(
            "keep MPI out of the ranks, or start them so that MPI learns its rank",
            command="srun --mpi=pmix python train.py   # where srun --mpi=list names it",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the MPI library was built without support for the PMI that Slurm offers",
                "a package starts MPI beside torchrun: mpi4py, DeepSpeed's MPI discovery, Transformer Engine's overlap",
            ),
            "srun --mpi=list; ompi_info | grep -iE 'pmi|slurm'; python -X importtime train.py 2>&1 | grep mpi4py",
        ),
    )


@log_pattern(
    r"OMPI was not built with SLURM(?:'s PMI|) support|PMI2_Init failed to in?i?tialize"
    r"|The SLURM process starter for OpenMPI was unable to locate a usable PMI"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what Open MPI says before it ends the rank."""
    yield Finding(
        "srun started the ranks, and the MPI library that they load was built without support for Slurm",
        (record.proof(match, "a library that Slurm can tell its rank"),),
        Fix(
            "start the ranks with torchrun, without MPI; or let Slurm and MPI agree on PMIx",
            command="srun --ntasks-per-node=1 torchrun --nnodes=$SLURM_NNODES --nproc_per_node=gpu train.py   # no MPI"
            "\nsrun --mpi=pmix python train.py   # with MPI, where srun --mpi=list names it",
        ),
        record.place,
    )
