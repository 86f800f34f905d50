"""The shell does not find the launcher.

## What happens

"torchrun: command not found": the environment that torch is installed in is not active in this shell. A batch script,
`ssh HOST command`, `docker exec` and srun start shells that do not read what the terminal's shell has read, so
`conda activate` and `source venv/bin/activate` belong into the script itself. After `pip install --user`, the commands
are in `~/.local/bin`.

## How to be sure

`command -v torchrun` in that same shell, and on each node: `srun --ntasks-per-node=1 bash -c 'command -v torchrun'`.

## How to mend it

Activate the environment in the script, or start the launcher as a module: `python -m torch.distributed.run`.

## Versions and sources

Holds for all versions. Sources: torchrun documentation; accelerate and DeepSpeed, entry points.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP416", Severity.ERROR)
MODULES = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.launch"}
NAME = r"(?P<{}>torchrun|accelerate|deepspeed|horovodrun|composer|fabric)"


@log_pattern(
    rf"(?:^|[\s:/]){NAME.format('shell')}: (?:command )?not found\b|command not found: {NAME.format('zsh')}\b"
    rf'|exec: "{NAME.format("docker")}": executable file not found|execve\(\): (?P<slurm>[\w.-]{{1,60}}): No such file'
    rf"|No such file or directory: '{NAME.format('python')}'"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the shell, the container or Slurm."""
    name = next(filter(None, match.groupdict().values()))
    module = MODULES.get(name)
    yield Finding(
        f"{name} is not on the PATH of the shell that is to start it",
        (record.proof(match, f"the folder of {name} on PATH"),),
        Fix(
            "activate the environment in the script that launches, as it is active in your terminal",
            command="source /path/to/venv/bin/activate   # or: conda activate NAME"
            + (f"\npython -m {module} ...   # the same launcher, of this Python" if module else ""),
        ),
        record.place,
    )
