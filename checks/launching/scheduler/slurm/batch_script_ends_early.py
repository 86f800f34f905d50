"""The batch script ends while its trainings run in the background, and Slurm ends them.

## What happens

`torchrun ... &` starts a training beside the script. When the last line of a batch script is done, the job is done:
Slurm ends all that it left behind, within seconds, and reports the job as completed. The log has a few lines of the
trainings, or none, and no error.

## How to be sure

`sacct -j JOBID` says COMPLETED after a few seconds. In a file (`ddpdoctor lint`): it has a header of #SBATCH, what
starts the ranks ends in `&`, and nothing waits for it.

## How to mend it

    torchrun ... --fold 0 &
    torchrun ... --fold 1 &
    wait

## Versions and sources

Source: Slurm, sbatch(1) and slurm.conf(5) (KillWait); Bash Reference Manual, "Job Control Builtins". Holds for every
version of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import LaunchScript

AILMENT = Ailment("DDP492", Severity.ERROR)
QUICK = {"echo", "printf", "cd", "export", "date", "set", "unset", "mkdir", "true", "exit", "pids+=", "local"}
"""Commands that are done at once: below them the script still ends early."""
WAITS = re.compile(r"^[^#\n]*\b(?:wait|sleep|fg|tail|parallel|read|disown|trap)\b", re.MULTILINE)


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for launchers in the background of a batch script with nothing below that takes time."""
    if not any(each.is_read for each in launch.headers) or WAITS.search(launch.text):
        return
    started = [each for each in launch.launches if each.command.in_background and each.handed is None]
    if not started:
        return
    last = started[-1]
    below = [each for each in launch.shell.commands if each.line > last.line]
    if any(each.words and each.words[0].text not in QUICK and not each.in_background for each in below):
        return
    first = next(each for each in launch.headers if each.is_read)
    yield Finding(
        f"{last.tool} runs in the background, and the batch script ends: Slurm ends what it left behind",
        (launch.seen(last.line, "wait, below the last training"), launch.seen(first.line)),
        Fix("wait for them", diff="+wait"),
        launch.place(last.line),
    )
