"""The script meets on another port than the one that torchrun has opened.

## What happens

torchrun opens the store of the rendezvous itself, on the MASTER_PORT that it gives to its ranks, and tells them so
(TORCHELASTIC_USE_AGENT_STORE=True). No rank opens one then, rank 0 neither. A script that sets
`os.environ["MASTER_PORT"]`, or that passes `init_method="tcp://localhost:23456"`, sends all ranks to a port on which
nobody listens: they ask for it until the time-out of init_process_group (30 minutes, or 10 with NCCL).

## How to be sure

`ddpdoctor run` compares the port that torchrun gave with the one that init_process_group is told.

## How to mend it

Delete the line that sets MASTER_ADDR and MASTER_PORT, and the init_method: `init_process_group("nccl")` finds what
torchrun has set. To choose a port, tell torchrun: `torchrun --master_port=29501`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's torch/distributed/rendezvous.py, `_create_c10d_store`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Joining, Severity, place, watch

from ..._hosts.store import misses_the_store

AILMENT = Ailment("DDP441", Severity.ERROR)
LEFT_TO_IT = Fix(
    "leave the address and the port to torchrun",
    diff='-os.environ["MASTER_PORT"] = "..."\n-dist.init_process_group(backend, init_method="tcp://...")\n'
    "+dist.init_process_group(backend)",
)
ONE_LAUNCHER = Fix(
    "start the ranks once: leave torchrun out where mp.spawn starts them, or drop mp.spawn", command="python train.py"
)


@watch(Joining)
def while_training(event: Joining) -> Iterator[Finding]:
    """Compare the port with that of the launcher."""
    if misses_the_store(event):
        port = event.store_port
        below = event.spawned is not None
        yield Finding(
            f"the ranks are told to meet at {event.address}, and torchrun has opened the store on port {port}: no "
            "rank opens one there, and they wait until the time-out"
            + ("; mp.spawn has started them, below torchrun" if below else ""),
            (
                Evidence(f"init_process_group is told {event.address}", f"port {port}", "the call"),
                Evidence(f"MASTER_PORT={port}, TORCHELASTIC_USE_AGENT_STORE=True", "", "set by torchrun"),
                *(
                    [Evidence(f"mp.spawn(..., nprocs={event.spawned})", "one launcher", "below torchrun")]
                    if below
                    else []
                ),
            ),
            ONE_LAUNCHER if below else LEFT_TO_IT,
            place(event.site),
        )
