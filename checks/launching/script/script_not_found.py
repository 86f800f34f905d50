"""The script that is to be launched is not there.

## What happens

Python says "can't open file '/workspace/trian.py': [Errno 2] No such file or directory" once for each rank, and ends
with status 2; the launcher's own traceback and "exitcode : 2" stand below it. The name is misspelt, or it is relative
and the launcher was started in another folder: `sbatch`, `docker run` and `ssh` begin in folders of their own.
Lightning starts its other ranks itself, with the script's name as it was given: where Hydra has changed the working
folder meanwhile, rank 0 alone finds it.

## How to be sure

The line names the path as it was looked for, made absolute by the working folder.

## How to mend it

Give the script's absolute path; with Lightning and Hydra, start the ranks with torchrun, or leave the folder as it is.

## Versions and sources

Holds for all versions of Python and launchers. Source: CPython, Modules/main.c; Lightning,
strategies/launchers/subprocess_script.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP414", Severity.ERROR)
CHILD = r"Child process with PID \d+ terminated with code 2\b|Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/"
HYDRA = re.compile(r"/(?:outputs|multirun)/\d{4}-\d\d-\d\d/")


@log_pattern(r"python[\w.]{0,9}(?:\.exe)?: can't open file '(?P<path>[^'\n]{1,500})': \[Errno 2\]", context=(CHILD,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Quote the path as Python looked for it."""
    of_lightning = log.first(CHILD) is not None
    by_hydra = of_lightning and HYDRA.search(match["path"])
    yield Finding(
        f"there is no script {match['path']}"
        + (": Lightning starts the other ranks in the folder that Hydra has changed to" if by_hydra else ""),
        (record.proof(match, "a file"),),
        Fix(
            "leave the working folder as it is, or let torchrun start all ranks",
            command="python train.py hydra.job.chdir=False   # Hydra 1.2 and later\n"
            "torchrun --standalone --nproc_per_node=gpu train.py",
        )
        if by_hydra
        else Fix(
            "name it as it is spelt, by its absolute path: a relative one counts from where the launcher is started",
            command='torchrun --standalone --nproc_per_node=gpu "$PWD/train.py"',
        ),
        record.place,
    )
