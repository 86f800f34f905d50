"""The shell does not find the launcher, or the launcher does not find its Python.

## What happens

"torchrun: command not found": the environment that torch is installed in is not active in this shell. A batch script,
`ssh HOST command`, `docker exec` and srun start shells that do not read what the terminal's shell has read, so
`conda activate` and `source venv/bin/activate` belong into the script itself. After `pip install --user`, the commands
are in `~/.local/bin`.

mpirun looks for the program on each host, at the path that it has on the first one: "mpirun was unable to find the
specified executable file". The host that it names has no environment there.

On Windows, `torchrun.exe` is a small program that starts the Python which was noted when it was installed. Where that
Python is not there, as after the environment was moved or copied, and with some packages of conda, all that it says is
"failed to create process." or "Unable to create process using ...".

## How to be sure

`command -v torchrun` in that same shell, and on each node: `srun --ntasks-per-node=1 bash -c 'command -v torchrun'`. On
Windows `where torchrun python`: both belong to one environment.

## How to mend it

Activate the environment in the script, or start the launcher as a module: `python -m torch.distributed.run`.

## Versions and sources

Holds for all versions. Sources: torchrun documentation; Open MPI 4.1.4, which was run, its help-orterun.txt and
help-errmgr-base.txt; accelerate and DeepSpeed, entry points; pytorch
issue 108602.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Place, Record, Severity, log_pattern

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


OF_MPI = (
    r"(?:mpirun|mpiexec|orterun|prterun) was unable to (?:find the specified executable file|launch the specified "
    r"application as it could not access)"
)
NODE, EXECUTABLE = r"^Node:\s+(\S+)$", r"^Executable:\s+(\S.*)$"


@log_pattern(OF_MPI, context=(NODE, EXECUTABLE))
def on_a_host_of_mpirun(log: Log) -> Iterator[Finding]:
    """Name the host and the program, which Open MPI says in lines of their own."""
    node, program = log.first(NODE), log.first(EXECUTABLE)
    if node is None or program is None:
        return
    host, name = node[1][1], program[1][1].strip()
    yield Finding(
        f"host {host} has no program {name}: mpirun has started nothing",
        (program[0].proof(program[1], f"the same program on {host}"), node[0].proof(node[1])),
        Fix(
            f"make the environment on {host} at the same path, or put it into a folder that all hosts share",
            command=f"ls -l {name}   # on {host}\nmpirun -x PATH ...   # where only the first host finds it",
        ),
        Place(host=host),
    )


PROGRAM = r"(?P<launcher>torchrun|accelerate|deepspeed)(?:\.exe)?"
STARTED = rf"\b{PROGRAM}\b|\bllamafactory\.cli\b[^\n]{{0,40}}Initializing distributed tasks at"
"""LLaMA-Factory's own command says this, and starts torchrun next."""


@log_pattern(r"^failed to create process\.?$", context=(STARTED,))
def without_its_python(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Quote the launcher's program, where the log shows which launcher it is."""
    names = {found["launcher"] or "torchrun" for _, found in log.find(STARTED)}
    if len(names) == 1:
        yield _without_python(record, match, names.pop())


@log_pattern(rf"Unable to create process using '[^\n]{{0,500}}?[\\/]{PROGRAM}[\"' ]")
def at_a_python_of_another_place(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the launcher's program, which names itself and the Python that it was installed with."""
    yield _without_python(record, match, match["launcher"])


def _without_python(record: Record, match: re.Match[str], name: str) -> Finding:
    module = MODULES.get(name)
    return Finding(
        f"{name}.exe cannot start the Python that it was installed with: nothing of your script has run",
        (record.proof(match, f"the Python that {name}.exe was installed with is where it was"),),
        Fix(
            f"start it as a module of the Python that is there; to mend {name}.exe itself, make the environment anew",
            command=f"python -m {module} ..." if module else f"pip install --force-reinstall --no-deps {name}",
        ),
        record.place,
    )
