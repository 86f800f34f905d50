"""Some of the variables of a rendezvous are set, and others are missing.

`init_process_group` without an init_method reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and raises
"environment variable X expected, but not set" where one is missing. torchrun sets them all for each rank, so a
process that torchrun starts is never concerned; a process that is started by hand, by srun or by mpirun is.

Judged only where RANK is set, which says that this very environment is a rank's: MASTER_ADDR and MASTER_PORT alone
are what people set for torchrun, and images of clusters set WORLD_SIZE. RANK without any of the others is a left-over,
and a note: torchrun overwrites it.

To be sure: `env | grep -E '^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT)='`.

Source: torch.distributed documentation, "Environment variable initialization"; torchrun documentation. Holds for
torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.facts import Facts

CARD = Card("DDP102", Severity.ERROR)
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@probe
def in_a_ranks_environment(facts: Facts) -> Iterator[Finding]:
    """Look for what is missing beside RANK."""
    if "RANK" not in facts.environ:
        raise NotRun("RANK is not set: a launcher is to set all of them")
    missing = [name for name in NEEDED if not facts.environ.get(name)]
    if missing:
        there = ", ".join(f"{name}={facts.environ[name]}" for name in NEEDED if facts.environ.get(name))
        yield Finding(
            f"RANK is set, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            (Evidence(f"{there}; not set: {', '.join(missing)}", f"all of {', '.join(NEEDED)}", "environment"),),
            Fix("let torchrun set them", command="torchrun --standalone --nproc_per_node=2 train.py"),
            Place(variable=missing[0]),
            severity=Severity.NOTE if len(missing) == len(NEEDED) - 1 else None,
        )
    elif "LOCAL_RANK" not in facts.environ and facts.gpus.devices:
        yield Finding(
            "LOCAL_RANK is not set: the script cannot tell which GPU is its own",
            (Evidence("LOCAL_RANK not set", "0, 1, ... on each host", "environment"),),
            Fix(
                "set it for each process",
                command='export LOCAL_RANK="$SLURM_LOCALID"  # or $OMPI_COMM_WORLD_LOCAL_RANK',
            ),
            Place(variable="LOCAL_RANK"),
            severity=Severity.NOTE,  # operators of Kubernetes set RANK for the node, and torchrun the rest
        )
