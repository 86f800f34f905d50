"""Some of the variables of a rendezvous are set, and others are missing.

## What happens

`init_process_group` without an init_method reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and raises
"environment variable X expected, but not set" where one is missing. Scripts that read a variable themselves fail with
KeyError: 'LOCAL_RANK', for example. torchrun sets all of them for each rank. A process that is started by hand, by
srun or by mpirun does not get them. NODE_RANK is not set by torchrun either: the same number is in GROUP_RANK.

## How to be sure

`env | grep -E '^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT)='` shows which are set. ddpdoctor judges them
only where RANK is set, since this says that the environment is a rank's: MASTER_ADDR and MASTER_PORT alone are what
users set for torchrun, and images of clusters set WORLD_SIZE. WORLD_SIZE above 1 alone is a note, where neither
an operator of Kubernetes nor a number of nodes explains it. RANK without any of the others is left over from
earlier, and a note: torchrun overwrites it. LOCAL_RANK alone missing, on a host with GPUs, is a note.

In a batch script of Slurm (`ddpdoctor lint`): python alone starts a script that in every run reads RANK, LOCAL_RANK or
WORLD_SIZE without a default, and neither of them sets one.

## How to mend it

- Start the script with torchrun: `torchrun --standalone --nproc_per_node=2 train.py`.
- With srun or mpirun, set the variables for each process from those of the launcher, for example
  `export LOCAL_RANK="$SLURM_LOCALID"` or `export LOCAL_RANK="$OMPI_COMM_WORLD_LOCAL_RANK"`.
- A script that reads NODE_RANK: read GROUP_RANK in its place, or set NODE_RANK to the number of the node, from 0.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "Environment variable initialization"; torchrun
documentation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    INIT,
    PYTHONS,
    TO_JOIN,
    Ailment,
    Evidence,
    Finding,
    Fix,
    NotRun,
    Place,
    Record,
    Severity,
    given,
    is_open,
    keyword,
    lint,
    log_pattern,
    probe,
    read_launch,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Facts, LaunchScript, Script

AILMENT = Ailment("DDP351", Severity.ERROR)
LAUNCHERS = (
    ("SLURM_", ("srun", "srun --ntasks-per-node=2 python train.py")),
    ("OMPI_", ("mpirun", "mpirun -np 2 python train.py")),
    ("NODE_RANK", ("", "export NODE_RANK=0   # the number of this node, from 0")),
)
OF_NODES = ("NNODES", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR")
"""With one of them WORLD_SIZE can count the hosts: images of clusters set it so, for a script that calls torchrun."""


@probe
def in_a_ranks_environment(facts: Facts) -> Iterator[Finding]:
    """Look for what is missing beside RANK."""
    if "RANK" not in facts.environ:
        yield from _without_rank(facts)
        return
    missing = [name for name in TO_JOIN if not facts.environ.get(name)]
    if missing:
        there = ", ".join(f"{name}={facts.environ[name]}" for name in TO_JOIN if facts.environ.get(name))
        yield Finding(
            f"RANK is set, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            (Evidence(f"{there}; not set: {', '.join(missing)}", f"all of {', '.join(TO_JOIN)}", "environment"),),
            Fix("let torchrun set them", command="torchrun --standalone --nproc_per_node=2 train.py"),
            Place(variable=missing[0]),
            severity=Severity.NOTE if len(missing) == len(TO_JOIN) - 1 else None,
        )
    elif "LOCAL_RANK" not in facts.environ and facts.gpus.devices:
        yield Finding(
            "LOCAL_RANK is not set: the script cannot tell which GPU is its own",
            (Evidence("LOCAL_RANK not set", "0, 1, ... on each host", "environment"),),
            Fix(
                "set it for each process",
                command='export LOCAL_RANK="$SLURM_LOCALID"  # or $OMPI_COMM_WORLD_LOCAL_RANK',
            ),
            Place(variable="LOCAL_RANK"),
            severity=Severity.NOTE,  # operators of Kubernetes set RANK for the node, and torchrun the rest
        )


def _without_rank(facts: Facts) -> Iterator[Finding]:
    """Look for a number of ranks that is set by hand, or left over, in a shell in which no launcher has been."""
    size = facts.environ.get("WORLD_SIZE", "")
    if not (size.isdecimal() and int(size) > 1) or any(map(facts.environ.get, OF_NODES)) or _launched(facts):
        raise NotRun("RANK is not set: a launcher is to set all of them")
    yield Finding(
        f"WORLD_SIZE={size} is set, and RANK is not: a script that is started without a launcher counts {size} ranks "
        "and is none of them",
        (Evidence(f"WORLD_SIZE={size}; not set: RANK", f"all of {', '.join(TO_JOIN)}, or none", "environment"),),
        Fix(
            "take it away, and let torchrun set all of them",
            command="unset WORLD_SIZE\ntorchrun --standalone --nproc_per_node=2 train.py",
        ),
        Place(variable="RANK"),
        severity=Severity.NOTE,  # torchrun replaces it
    )


def _launched(facts: Facts) -> bool:
    """Whether a launcher or an operator of clusters has started this: images of theirs count hosts in WORLD_SIZE."""
    return bool(read_launch(facts.environ).launcher) or "KUBERNETES_SERVICE_HOST" in facts.environ


@probe
def in_a_hosts_environment(facts: Facts) -> Iterator[Finding]:
    """Look for hosts that are counted and not numbered: each is looked at alone, and else nothing says so."""
    count = facts.environ.get("NNODES", "")
    if not (count.isdecimal() and int(count) > 1 and facts.environ.get("MASTER_ADDR")):
        raise NotRun("NNODES and MASTER_ADDR are not set")
    if read_launch(facts.environ).launcher or "GROUP_WORLD_SIZE" in facts.environ:
        return
    yield Finding(
        f"NNODES={count} counts several hosts, and neither NODE_RANK nor a launcher says which one this is",
        (Evidence(f"NNODES={count}; not set: NODE_RANK", f"NODE_RANK=0 to {int(count) - 1}", "environment"),),
        Fix("say it, on each host, where the hosts are to be looked at together", command=LAUNCHERS[-1][1][1]),
        Place(variable="NODE_RANK"),
        severity=Severity.NOTE,  # torchrun's c10d rendezvous numbers the hosts by itself
    )


@log_pattern(
    r"environment variable (\w+) expected, but not set"
    r"|int\(os\.(?:environ\.get|getenv)\(['\"]((?:LOCAL_)?RANK|WORLD_SIZE)['\"]\)\)\s[^\0]{0,200}?"
    r"TypeError: int\(\) argument"
    r"|KeyError: '((?:LOCAL_|NODE_|GROUP_)?RANK|(?:LOCAL_)?WORLD_SIZE"
    r"|MASTER_ADDR|MASTER_PORT|SLURM_(?:PROCID|LOCALID|NTASKS|NODEID|JOB_NODELIST|NODELIST)"
    r"|OMPI_COMM_WORLD_(?:RANK|SIZE|LOCAL_RANK))'"
    r"|(?P<none>RuntimeError: Can't find any rank or local rank)"
    r"|raise _env_error\(\"(\w+)\"\)(?![^\0]{0,400}expected, but not set)",
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the variable, and who would have set it."""
    name = match[1] or match[2] or match[3] or ("RANK" if match["none"] else match[5])
    launcher, command = next(
        (found for start, found in LAUNCHERS if name.startswith(start)),
        ("torchrun", "torchrun --standalone --nproc_per_node=2 train.py"),
    )
    yield Finding(
        f"{name} is not set: the script was not started by {launcher}, which sets it"
        if name != "NODE_RANK"
        else "the script reads NODE_RANK, which torchrun does not set",
        (record.proof(match, f"{name} in the environment of each rank"),),
        Fix(f"start it with {launcher}" if name != "NODE_RANK" else "read GROUP_RANK, or set it", command=command),
        Place(file=record.place.file, line=record.place.line, rank=record.rank, variable=name),
    )


SET = r"MASTER_|torchrun|distributed\.(?:launch|run)\b|environ\.(?:update|setdefault)|putenv|dotenv|(?:tcp|file)://|SLURM|OMPI"
"""What says that the address is set, or another way to meet."""
SET_BY_LAUNCH = (
    r"MASTER_ADDR|\btorchrun\b|distributed\.(?:launch|run)\b|\baccelerate launch\b|(?m:^[ \t]*deepspeed[ \t])"
)
"""What says in a launch script that the address is set, by the script or by its launcher."""
OF_LAUNCHER = r"[\"']--local[-_]rank[\"']|LOCAL_RANK"
"""What says that a launcher starts the script, which sets the address for all that the script starts."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for ranks that mp.spawn starts, which are to find the master in the environment, where nobody writes it."""
    starts = script.calls("torch.multiprocessing.spawn")
    if not starts or project.does(SET) or project.in_own_launches(SET_BY_LAUNCH) or project.does(OF_LAUNCHER):
        return
    for call in script.calls(INIT):
        method, store = given(call, 1, "init_method"), keyword(call, "store")
        is_of_environment = method is None or (isinstance(method, ast.Constant) and method.value in {None, "env://"})
        if is_open(call) or store is not None or not is_of_environment or not script.all_ranks_reach(call):
            continue
        yield Finding(
            "the spawned ranks look for MASTER_ADDR and MASTER_PORT, and nothing sets them: a ValueError in each",
            (script.seen(call, 'os.environ["MASTER_ADDR"] and ["MASTER_PORT"] set before'), script.seen(starts[0])),
            Fix(
                "set them before the ranks are spawned",
                diff='+os.environ["MASTER_ADDR"] = "127.0.0.1"\n+os.environ["MASTER_PORT"] = "29500"',
            ),
            script.place(call),
        )


@lint
def rank_in_source(script: Script) -> Iterator[Finding]:
    """Look for a rendezvous by an address or a file, which is not told the rank or the number of ranks."""
    for call in script.calls(INIT):
        method, store = given(call, 1, "init_method"), keyword(call, "store")
        held = script.value(method) if method is not None else None
        text = held.value if isinstance(held, ast.Constant) and isinstance(held.value, str) else ""
        scheme = text.partition("://")[0]
        missing = [each for each in ("rank", "world_size") if keyword(call, each) is None]
        is_told = store is not None or is_open(call) or "?" in text or len(call.args) > PLACES
        if is_told or scheme not in {"tcp", "file"} or not missing:
            continue
        yield Finding(
            f"a rendezvous by {scheme}:// takes {' and '.join(missing)} from the call alone, which does not pass "
            f"{'it' if len(missing) == 1 else 'them'}: a ValueError in each process",
            (script.seen(call, ", ".join(f"{each}=..." for each in missing)),),
            Fix(f"pass {' and '.join(missing)}, or leave out init_method, so that torchrun tells both"),
            script.place(call),
        )


PLACES = 2
"""Arguments that come before the timeout, the world size and the rank, and are mostly passed by place."""


MAY_BE_SET = re.compile(r"RANK|WORLD_SIZE|^[ \t]*(?:source|\.)[ \t]|\beval\b|--export", re.MULTILINE)
"""What can set a variable in a batch script."""


@lint
def in_batch_script(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for a script that needs a launcher, and that a batch script starts by python alone."""
    if not any(each.is_read for each in launch.headers) or launch.launches or MAY_BE_SET.search(launch.text):
        return
    for command in launch.shell.commands:
        words = [each.text for each in command.words if each.text != "-u"]
        if len(words) < 2 or not PYTHONS.match(words[0]) or not words[1].endswith(".py") or not command.is_certain:  # noqa: PLR2004
            continue
        name = project.needed(words[1])
        if name:
            yield Finding(
                f"{words[1]} reads {name}, and is started without a launcher, which sets it: a KeyError",
                (launch.seen(command.line, f"srun torchrun ... {words[1]}"),),
                Fix(
                    "let torchrun start it, which sets the variables of each rank",
                    command=f"torchrun --standalone --nproc_per_node=gpu {words[1]}",
                ),
                launch.place(command.line),
            )
