"""The backend is mpi, and this torch was built without it.

## What happens

No wheel of torch has the MPI backend: it is there only where torch was built from source, on a host with MPI.
`init_process_group("mpi")` raises on every rank at once: "Distributed package doesn't have MPI built in".

## How to be sure

`python -c "import torch.distributed as dist; print(dist.is_mpi_available())"` prints False.

## How to mend it

Take `nccl` for GPUs and `gloo` for CPUs, and start with torchrun; `mpirun` can start the ranks all the same, where the
script reads its variables (OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE, of Open MPI):

    dist.init_process_group("gloo", rank=int(os.environ["OMPI_COMM_WORLD_RANK"]),
                            world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]), init_method="tcp://host:29500")

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/distributed/distributed_c10d.py, and its documentation, "Backends".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP756", Severity.ERROR)


@log_pattern(r"Distributed package doesn't have MPI built in")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """It is said by each rank."""
    yield Finding(
        "the backend mpi is not in this build of torch: no wheel has it",
        (record.proof(match, "a backend that is built in: nccl or gloo"),),
        Fix(
            "take nccl for GPUs, gloo for CPUs",
            diff='-dist.init_process_group("mpi")\n'
            '+dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        ),
        record.place,
    )
