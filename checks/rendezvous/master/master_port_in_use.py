"""The master's port is in use on this host already.

## What happens

Rank 0 opens the store on MASTER_PORT. If another process listens there, it fails with "Address already in use" (errno
98, EADDRINUSE). If that process is the store of an earlier run that did not end, the ranks of the new run can join
the old one. "Ping failed, invalid value returned from server" means that another program answers on the port. Where
no port is given, torchrun takes 29500 for a static rendezvous, so that two trainings on one host collide; on one host
torch 2.13 chooses a free port in its place.

## How to be sure

`ss -ltnp 'sport = :29500'` shows who listens on the port; of another torchrun `ddpdoctor run` says what it runs.
ddpdoctor looks for a listener where this host runs rank 0, or the environment does not say otherwise. It is an error
where MASTER_PORT is set, and a note for torchrun's default port. In a log the same warning is harmless where a second
torchrun of the same rendezvous runs on the host and both go on.

In a file that starts trainings (`ddpdoctor lint`): two launchers run beside each other on one host, and are given one
port; or a loop starts them in the background.

## How to mend it

- One host: `torchrun --standalone --nproc_per_node=2 train.py` chooses a free port.
- Several hosts: choose another port, the same for all ranks, `export MASTER_PORT=29617`.
- End the process that holds the port, if it is your own and left over from an earlier run.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "TCP initialization"; torchrun documentation,
"Single-node multi-worker"; torch 2.13, torch/distributed/run.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Failed,
    Finding,
    Fix,
    Log,
    NotRun,
    Place,
    Record,
    Severity,
    lint,
    log_pattern,
    probe,
    several_hosts,
    watch,
)

from ..._hosts.hosts import holds_rank_zero, port
from ._ports_beside import beside, port_of

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, LaunchScript

AILMENT = Ailment("DDP353", Severity.ERROR)
TAKEN = (
    r"server socket has failed to (?:listen|bind)\b[\s\S]{0,200}?(?:errno: (?:98|48)\b|system error: 10048|EADDRINUSE)"
    r"|(?:RuntimeError|DistNetworkError|DistStoreError): (?:\[Errno 98\] )?Address already in use"
)
PORT = r"port: (\d+)|(?:\]|0\.0\.0\.0|\*|\d):(\d+) \((?:errno|system)"
AGENT = r"static_tcp_rendezvous\.py|torch[/\\]distributed[/\\](?:run|launch)\.py"
RAISED = re.compile(r"\w+Error: ")
AGENTS_STORE = r"TORCHELASTIC_USE_AGENT_STORE is enabled so ignoring the error"
BESIDE = (AGENT, AGENTS_STORE)
HOLDER = re.compile(r"(pid \d+ \((.*)\)) listens on port (\d+)")
LAUNCHER = re.compile(r"\b(torchrun|torch\.distributed\.(?:run|launch)|accelerate(?= launch))\b")


@probe
def by_whom(facts: Facts) -> Iterator[Finding]:
    """Look for who listens on the port."""
    if facts.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise NotRun("torchrun's agent holds the port")
    if holds_rank_zero(facts.environ) is False or facts.environ.get("RANK", "0") != "0":
        raise NotRun("rank 0 opens the port, and this is another")
    wanted = port(facts.environ)
    holder = next((each for each in facts.network.listeners if each.port == wanted), None)
    if holder is None:
        return
    if "ddpdoctor check" in holder.command:
        raise NotRun("another check of this host meets there")
    who = f"pid {holder.pid} ({holder.command})" if holder.pid else "a process of another user"
    several = several_hosts(facts.environ)
    declared = bool(facts.environ.get("MASTER_PORT"))
    yield Finding(
        f"port {wanted} is in use by {who}",
        (Evidence(f"{who} listens on {holder.address}:{wanted}", "nobody", "TCP sockets"),),
        Fix(
            "take another port, the same on all hosts, or end that process if it is yours"
            if several
            else "let torchrun choose a free port, or end that process if it is yours",
            command=(
                "export MASTER_PORT=29617   # with torchrun: --rdzv_endpoint=HOST:29617"
                if several
                else "torchrun --standalone --nproc_per_node=2 train.py"
            )
            + (f"   # kill {holder.pid}" if holder.pid else ""),
        ),
        Place(variable="MASTER_PORT" if declared else None, host=facts.network.hostname),
        severity=None if declared else Severity.NOTE,
    )


@log_pattern(TAKEN, context=BESIDE)
def in_an_exception(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield the name of the port and who wanted it, unless torch says that it goes on."""
    if RAISED.search(record.text) and not log.first(AGENTS_STORE):
        own = re.search(AGENT, record.text)
        yield _finding(record, match, (record.proof(own, "torchrun --standalone chooses a free port"),) if own else ())


@log_pattern(TAKEN, context=BESIDE)
def in_a_warning(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Take the line alone with a doubt: a torchrun that finds the store of its own rendezvous joins it and goes on."""
    if not RAISED.search(record.text) and not log.first(AGENTS_STORE):
        yield replace(
            _finding(record, match, ()),
            ambiguity=Ambiguity(
                (
                    "another training or a process that is left over holds the port",
                    "several processes of this training believe that they are rank 0",
                    "another torchrun of the same rendezvous on this host holds it, and both go on: harmless",
                ),
                "ss -ltnp | grep python   # who listens; then env | grep -E '^(RANK|MASTER_PORT)=' for each process",
            ),
        )


def _finding(record: Record, match: re.Match[str], more: tuple[Evidence, ...]) -> Finding:
    found = re.search(PORT, record.text)
    number = (found[1] or found[2]) if found else None
    return Finding(
        f"port {number or 'of the store'} is in use on this host already",
        (record.proof(match, "a free port"), *more),
        Fix(
            "let torchrun choose a free port, or end what holds this one",
            command="torchrun --standalone --nproc_per_node=2 train.py"
            + (
                f"   # who holds it: ss -ltnp 'sport = :{number}'\n"
                f"export MASTER_PORT={int(number) + 1}   # several hosts: another one, the same on all"
                if number
                else ""
            ),
        ),
        record.place,
    )


@watch(Failed)
def by_another_launcher(event: Failed) -> Iterator[Finding]:
    """Say which launcher of this host has the port that a launcher was refused, and what it runs."""
    refused = re.search(TAKEN, event.text)
    holders = [found for text, _ in event.seen if (found := HOLDER.fullmatch(text))]
    if not refused or not holders or not re.search(AGENT, event.text):
        return
    who, command, number = holders[0].groups()
    if (launcher := LAUNCHER.search(command)) is None:
        return
    yield Finding(
        f"port {number} is in use on this host already: another {launcher[1]} runs here, {who}",
        (Evidence(event.said, "a free port"),),
        Fix(
            "let this torchrun choose a free port, or give it another one; end the other training if it is left over",
            command="torchrun --standalone --nproc_per_node=2 train.py\n"
            f"torchrun --master_port={int(number) + 1} ... train.py   # several hosts: the same on all of them",
        ),
    )


@log_pattern(r"Ping failed, invalid value returned from server\. Expected: \d+, Got: (\d+)")
def by_a_stranger(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read that what answered is no store: the four bytes that it sent, in the order in which they came."""
    said = (int(match[1]) & 0xFFFFFFFF).to_bytes(4, "little")
    yield Finding(
        "another program than the store of rank 0 answers on MASTER_PORT"
        + (f": it says {said.decode()}" if said.isalnum() else ""),
        (record.proof(match, "the store of rank 0 answers"),),
        Fix("take another port, the same for all ranks", command="export MASTER_PORT=29617"),
        Place(variable="MASTER_PORT", rank=record.rank, host=record.node),
    )


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for launchers that run at the same time, with one port for all."""
    for each, number, other in beside(launch):
        looped = other == each.line
        yield Finding(
            f"the loop starts trainings beside each other on one host, and all open port {number}"
            if looped
            else f"two trainings run on one host at the same time, and both open port {number}",
            (launch.seen(each.line, "another port for each" if looped else f"another port than in line {other}"),)
            + (() if looped else (launch.seen(other),)),
            Fix("give each a port of its own, or none: --standalone chooses a free one"),
            launch.place(each.line),
        )


@lint
def in_job_array(launch: LaunchScript) -> Iterator[Finding]:
    """Look for a fixed port in the jobs of an array, of which several can run on one node."""
    array = launch.header("array")
    shared = not any(launch.header(name) for name in ("exclusive", "nodelist")) and (launch.count("nodes") or 1) == 1
    if array is None or not shared or array.value.endswith("%1") or not re.search(r"[-,]", array.value):
        return
    for each in launch.launches:
        port = port_of(launch, each)
        if port is None or "standalone" in each.options or each.is_open:
            continue
        yield Finding(
            f"each job of the array opens port {port}: two on one node collide",
            (launch.seen(each.line, "a port of its own for each job"), launch.seen(array.line)),
            Fix(
                "let each choose a free port, or count it from the number of the job",
                command=f"{each.tool} --standalone ...   # or: --master_port=$((29500 + SLURM_ARRAY_TASK_ID))",
            ),
            launch.place(each.line),
            ambiguity=Ambiguity(
                ("Slurm starts several jobs of the array on one node", "each job fills a node, and none meets another"),
                "squeue -u $USER -o '%i %N'   # whether two jobs of the array run on one node",
            ),
        )
