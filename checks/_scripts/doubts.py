"""What a source alone does not prove of a finding: where nothing around it does either, the finding is likely.

Each doubt is asked for in one place, and says what would settle it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

OF_ONE_HOST = (
    r"(?i:local_?rank|localid|local_?world|localhost|127\.0\.0\.1|n_?gpus|num_gpus|gpus_per_node|nproc|device_count)"
    r"|\bspawn\b|\bProcess\(|start_processes|Launcher\(|launch\(|notebook_launcher|--gpus?\b|\.gpu\b|\bgpu(?:_?id)?\s*="
    r"|device_ids|set_device\(|[\"']cuda:(?:\{|[\"'])|\.cuda\(\s*\w|\.to\(\s*f?[\"']?(?:\w+\.)*(?:\w*rank|gpu)\b"
    r"|file://|FileStore"
)
"""What a program says that has several ranks on one host: it tells them apart there, or lets them meet there."""
STARTED = (
    r"(?:\btorchrun\b|torch\.distributed\.(?:launch|run)\b"
    r"|\b(?:accelerate|deepspeed|horovodrun|mpirun|mpiexec|srun)[ \t])"
    r"(?:[^\n]|\\[ \t]*\n)*"
)
"""A command that starts several ranks on a host, in a launch script or a README, and what it goes on with."""
OWN_DISKS = Ambiguity(
    (
        "several ranks run on one host, or share its disk: they meet in this path",
        "each process is on a host or in a container of its own, with a disk of its own: no harm",
    ),
    "df -h .   # where each process runs: a file system of the network is shared",
)


def own_disks(script: Script, project: Around) -> Ambiguity | None:
    """Return that each rank can have a disk of its own: None where something says that ranks share a host.

    What is started by hand, with its rank and an address, is as often on a machine or in a container for each process.
    """
    if script.frameworks or project.says(OF_ONE_HOST):
        return None
    return None if project.is_imported() or _is_launched(script, project) else OWN_DISKS


SEVERAL_NODES = r"--nnodes[= ]+(?!1\b)[\d$]|#SBATCH +(?:-N|--nodes)[= ]*(?!1\b)\d|--node[-_]rank[= ]+[\"']?[1-9$]"
"""What a launch script, or a README, says of a training on several nodes."""
ONE_NODE = Ambiguity(
    ("the training runs on several nodes, whose local ranks are the same", "it only ever runs on one: no harm"),
    "grep -rn -e nnodes -e NNODES -e '#SBATCH.*nodes' .",
)


def one_node(script: Script, project: Around) -> Ambiguity | None:
    """Return that the ranks can all be on one node: None where nothing starts them, or something does on several."""
    return ONE_NODE if _is_launched(script, project) and not project.in_launches(SEVERAL_NODES) else None


def _is_launched(script: Script, project: Around) -> bool:
    """Whether a launch script, or a README, has a command that starts the script in several ranks on a host."""
    return project.in_launches(rf"{STARTED}\b{re.escape(script.name.removesuffix('.py'))}\b")
