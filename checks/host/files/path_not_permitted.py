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
OF_LAUNCHERS = r"(?:^|\n)(?:\[[^\]\n]{1,40}\] )?(?:srun|slurmstepd|make)(?:\[\d+\])?: [^\n]*"
OF_A_SHELL = r"(?:^|\n)[^\n]{0,80}(?:\$ \./|# \./|\$ bash |\$ sbatch |\$ srun )[^\n]*"
CANNOT_RUN = re.compile(r"(?:\bexit code|\bexit status|\bError) 126\b(?! \(ignored\))")


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
    context=(OF_LAUNCHERS, OF_A_SHELL),
)
def of_a_script(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read what the shell or Slurm says of what was to be started, where it is certain that this ended the job."""
    if not _ended_by(record, match, log):
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


def _ended_by(record: Record, match: re.Match[str], log: Log) -> bool:
    """Whether nothing but a launcher's farewell follows, and what was refused was to be executed.

    A shell says the same of what a redirection writes to, and of a script beside the job. So its own word counts where
    a launcher tells of status 126, or where the log has nothing else.
    """
    launchers = [each for each, _ in log.find(OF_LAUNCHERS) if each is not record and each.source == record.source]
    after = [each for each in launchers if log.lines_after(each) < log.lines_after(record)]
    if log.lines_after(record) > sum(map(_length, after)):
        return False
    if "execv" in match[0] or any(CANNOT_RUN.search(each.text) for each in after):
        return True
    typed = [each for each, _ in log.find(OF_A_SHELL) if each.source == record.source]
    return log.lengths.get(record.source) == _length(record) + sum(map(_length, after)) + sum(map(_length, typed))


def _length(record: Record) -> int:
    """Count its lines."""
    return len(record.numbers) or 1 + record.text.count("\n")
