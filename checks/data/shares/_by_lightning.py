"""What is to be mended where Lightning made the sampler: the Trainer counts the nodes as it was told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpdoctor.check import Fix

if TYPE_CHECKING:
    from ddpdoctor.check import Record

MADE_BY = re.compile(r"lightning[/\\\w-]*[/\\](?:data_connector|data|fabric)\.py")


def by_lightning(record: Record) -> Fix | None:
    """Return how the Trainer learns of all nodes, where the traceback shows that it made the sampler itself."""
    if not MADE_BY.search(record.text):
        return None
    return Fix(
        "tell the Trainer how many nodes there are: it counts devices x num_nodes, and num_nodes is 1 by default",
        command='echo "$SLURM_NNODES $GROUP_WORLD_SIZE"   # nodes of the launch\n'
        "pip install --upgrade lightning   # 2.0.0: FSDPStrategy did not hand num_nodes on",
        diff="-Trainer(devices=8, strategy='fsdp')\n"
        "+Trainer(devices=8, num_nodes=int(os.environ['SLURM_NNODES']), strategy='fsdp')",
    )
