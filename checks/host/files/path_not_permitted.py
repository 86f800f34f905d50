"""The user who trains is not allowed to read a path, or has no home that can be written.

## What happens

`PermissionError: [Errno 13] Permission denied` ends a rank. In containers it is often a cache: the user has no entry in
/etc/passwd or HOME is `/`, so that libraries want to write to `/.cache`, `/.config`, `/.triton`. Else a file, or the
folder that the job was started in, belongs to another user, on this host. A script that is started by its name without
being executable ends the job before a rank is there: "bash: ./train.sh: Permission denied".

## How to be sure

`id -un; echo $HOME; ls -ld PATH` in the shell that starts the ranks, on the host that failed.

## How to mend it

- A cache: give the ranks a home that can be written: `export HOME=/tmp/home`, or `XDG_CACHE_HOME`, `HF_HOME`,
  `TRITON_CACHE_DIR`, `TORCHINDUCTOR_CACHE_DIR` one by one.
- A file of another user: `chmod -R g+rX`, or a copy of one's own. A new folder for each user avoids it.

- A script: `chmod +x train.sh`, or `bash train.sh`, `python train.py`.

## Versions and sources

Holds for torch 2.2 and later, since it is Linux that refuses. Source: open(2), path_resolution(7); XDG Base Directory
specification.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP164", Severity.ERROR)
HOMELESS = re.compile(
    r"^/(?:\.(?:cache|config|local|triton|nv|keras|huggingface|dgl|wandb|torch|netrc|matplotlib)\b|nonexistent\b)"
)
FEW = 6  # lines, of a launcher or scheduler, in the log of a job that never began
WENT_ON = (
    r"(?:epoch|Epoch|step|Step|iter|Iter|loss|Loss)[ :=]{1,3}\d",
    r"finished|completed",
    r"arguments are required",
)
"""What a job says that began, or that has ended well; and the launcher whose command was cut off before a script."""


@log_pattern(
    r"PermissionError: \[Errno 13\] Permission denied: '(?P<path>[^'\n]{1,500})'"
    r"|OSError: \[Errno 30\] Read-only file system: '(?P<fixed>[^'\n]{1,500})'",
    plain=True,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell a cache of somebody without a home from a path of somebody else."""
    path = match["path"] or match["fixed"]
    by = f"rank {record.rank}" if record.rank is not None else "a rank"
    if HOMELESS.search(path):
        yield Finding(
            f"{by} has no home that it can write to: a library wants to keep its cache in {path}",
            (record.proof(match, "a cache below the user's home"),),
            Fix(
                "give the ranks a home", command="export HOME=/tmp/home XDG_CACHE_HOME=/tmp/home/.cache; mkdir -p $HOME"
            ),
            record.place,
        )
        return
    started = "os.chdir(data['dir'])" in record.text
    yield Finding(
        f"{by} is not allowed to enter {path}, the folder that the job was started in"
        if started
        else f"{by} is not allowed to use {path}",
        (record.proof(match, "a path that the user who trains is allowed to use"),),
        Fix(
            "start the job from a folder that the user of the ranks can enter"
            if started
            else "give the path to the user who trains, or use one of one's own",
            command=f"id; ls -ld {path}; namei -l {path}   # on that host, as the ranks: whose it is, and where "
            f"it ends",
        ),
        record.place,
    )


@log_pattern(
    r"(?:^|\n)(?:\[[^\]\n]{1,40}\] )?(?:(?:/usr)?(?:/bin/)?(?:ba|z|da)?sh: (?:(?:line )?\d+: )?"
    r"|[\w./-]{1,99}: line \d+: |(?:slurmstepd: )?error: execve\(\): |make: execvp: )"
    r"(?P<script>[^\s:]{1,300}\.(?P<kind>sh|py|bash|sbatch)): Permission denied",
    context=WENT_ON,
)
def of_a_script(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read what the shell or Slurm says of the last thing that was to be started: a job that went on had no need of it.

    A redirection says the same of what it writes to, which has another ending as a rule.
    """
    if log.lengths.get(record.source, FEW + 1) > FEW or any(map(log.first, WENT_ON)):
        return
    script = match["script"]
    runs = "python" if match["kind"] == "py" else "bash"
    yield Finding(
        f"{script} is started by its name, and is not executable",
        (record.proof(match, "a file with the right to be executed (x in ls -l)"),),
        Fix(
            "give it that right, or hand it to its interpreter",
            command=f"chmod +x {script}\n{runs} {script}   # in place of {script}",
        ),
        record.place,
    )
