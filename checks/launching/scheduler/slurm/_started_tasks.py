"""Which tasks came, by the lines of the ranks."""

from __future__ import annotations

import re

from ddpdoctor.check import (
    Finding,
    Fix,
    Log,
    Record,
)


def is_of_two_nodes(ranks: list[int], world: int) -> bool:
    """Whether each rank came once from each of the nodes, all at one time and not one run after another.

    A run that was started again repeats the ranks after all of them have come.
    """
    came = dict.fromkeys(ranks)
    nodes = world // len(came)
    again = next((at for at, rank in enumerate(ranks) if rank in ranks[:at]), len(ranks))
    mixed = len({*ranks[:again]}) < len(came)
    return nodes > 1 and nodes * len(came) == world and mixed and all(ranks.count(rank) == nodes for rank in came)


def ends_with(record: Record, log: Log) -> bool:
    return log.lines_after(record) <= SOON


SOON = 8  # lines: a training that goes on prints more


def of_nodes_that_all_are_the_first(record: Record, match: re.Match[str], local: int, world: int) -> Finding:
    nodes = world // local
    return Finding(
        f"{nodes} nodes number their {local} processes alike, so ranks 0 to {local - 1} came {nodes} times, and the "
        "others never: they are waited for",
        (record.proof(match, f"each of the {world} ranks once"),),
        Fix(
            "let srun start one task for each GPU, on all nodes",
            command=f"#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node={local}   # devices of the Trainer; "
            f"num_nodes={nodes}\nsrun python train.py",
        ),
        record.place,
    )
