"""What launchers of a script are told: counts and addresses, as far as the file says them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Launch, LaunchScript

SCRIPT = re.compile(r"[\w./-]+\.py\b")
"""How a command names a script of Python, also within what a shell is handed."""
NODES = {"$SLURM_NNODES", "$SLURM_JOB_NUM_NODES", "${SLURM_NNODES}", "${SLURM_JOB_NUM_NODES}"}
"""How a script says the number of the job's nodes."""


def nodes(launch: LaunchScript, each: Launch) -> int | None:
    """Return for how many nodes torchrun or accelerate waits; None where that is not certain."""
    word = each.options.get("num-machines" if each.tool == "accelerate launch" else "nnodes")
    if word is None:
        return None if each.is_open else 1
    if launch.held(word).text in NODES:
        return launch.count("nodes")
    return launch.number(word)


def ranks(launch: LaunchScript, each: Launch) -> int | None:
    """Return how many ranks a launcher starts on each node; None where that is not certain."""
    name = {"accelerate launch": "num-processes", "deepspeed": "num-gpus"}.get(each.tool, "nproc-per-node")
    word = each.options.get(name)
    if word is None:
        return 1 if name == "nproc-per-node" and not each.is_open else None
    return launch.number(word)
