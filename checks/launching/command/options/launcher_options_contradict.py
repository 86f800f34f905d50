"""Options of one launch exclude each other.

## What happens

The launcher or Slurm refuses them, or takes one and drops the other:

- `torchrun --standalone --nnodes=2`: standalone makes a rendezvous of its own on this host, which no second node can
  find. Each node waits for the other until the time-out.
- `--node_rank=2 --nnodes=2`: nodes count from 0. `--node_rank=1` without `--nnodes`: torchrun counts one node, so that
  node 0 trains alone, and the others wait or fail.
- `accelerate launch --num_machines=4 --num_processes=2`: `num_processes` is the number of all ranks, not of those of a
  node. With `--multi_gpu` it has to be 2 or more. With `--cpu` Accelerate starts one process, whatever that number is,
  and the training runs alone without a word; several are started by `torchrun`, or by mpirun and `--mpirun_hostfile`.
- `deepspeed --include ... --num_gpus=4`: DeepSpeed ends with "Cannot specify num_nodes/gpus with include/exclude".
- A host that stands twice in the hostfile: DeepSpeed ends with "Hostfile contains multiple entries".
- `--num_gpus=8` and a hostfile with `slots=4`: DeepSpeed starts 8 ranks on each host, four of them on GPUs that are not
  there. `--include` of a host that is not in the hostfile: it ends with "Hostname ... not found in hostfile".
- The same numbers in a configuration of Accelerate (`num_machines: 2`, `num_processes: 1`).
- `#SBATCH --nodes=2` with `--ntasks=1`: Slurm says "can't run 1 processes on 2 nodes, setting nnodes to 1".

## How to be sure

In a file (`ddpdoctor lint`): both are given as numbers.

## How to mend it

Say what is meant once: the number of nodes, and the ranks of each.

## Versions and sources

Sources: torch 2.13, torch/distributed/run.py; accelerate 1.15, commands/launch.py; DeepSpeed, launcher/runner.py;
Slurm, sbatch(1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, lint

from ..._launchers import nodes, ranks

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Launch, LaunchScript

AILMENT = Ailment("DDP468", Severity.ERROR)
WITH_MPI = {"mpirun-hostfile", "config-file"}
"""Options by which Accelerate starts several processes on the CPU, with mpirun."""


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Compare the options of each launcher with each other."""
    for each in launch.launches:
        for said, mend in _contradictions(launch, each):
            yield Finding(said, (launch.seen(each.line, mend),), Fix(mend), launch.place(each.line))


def _contradictions(launch: LaunchScript, each: Launch) -> Iterator[tuple[str, str]]:
    wanted, started, options = nodes(launch, each), ranks(launch, each), each.options
    if each.tool in {"torchrun", "torch.distributed.launch"}:
        yield from _of_torchrun(launch, each, wanted)
    elif each.tool == "accelerate launch" and started is not None:
        if "num-machines" in options and wanted is not None and started < wanted:
            yield (
                f"{started} ranks on {wanted} machines: --num_processes counts those of all machines",
                "--num_processes is the number of machines times the GPUs of each",
            )
        elif "cpu" in options and started > 1 and not (each.scheduler or each.is_open or options.keys() & WITH_MPI):
            yield (
                f"accelerate launch --cpu starts one process, and --num_processes={started} only where mpirun does it",
                f"torchrun --nproc-per-node={started}",
            )
        elif "multi-gpu" in options and started == 1:
            yield "--multi_gpu with one rank: accelerate refuses it", "leave out --multi_gpu, or start 2 ranks or more"
    elif each.tool == "deepspeed":
        chosen = options.keys() & {"include", "i", "exclude", "e"}
        counted = options.keys() & {"num-gpus", "num-nodes"}
        if chosen and counted:
            yield (
                f"--{min(counted).replace('-', '_')} and --{min(chosen)} in one command: DeepSpeed refuses that",
                f"leave out --{min(counted).replace('-', '_')}",
            )


def _of_torchrun(launch: LaunchScript, each: Launch, wanted: int | None) -> Iterator[tuple[str, str]]:
    options = each.options
    number = launch.number(options.get("node-rank"))
    if "standalone" in options and (wanted or 0) > 1:
        yield f"--standalone is for one node, and --nnodes={wanted} waits for {wanted}", "leave out --standalone"
    elif number and not any(name.startswith("nnode") for name in options) and "PET_NNODES" not in launch.text:
        yield (
            f"--node_rank={number} without --nnodes: torchrun counts one node, and this one is beyond it",
            f"--nnodes={number + 1} or more, the same on all nodes",
        )
    elif number is not None and wanted is not None and number >= wanted and "nnodes" in options:
        yield f"--node_rank={number} is none of {wanted} nodes", f"--node_rank from 0 to {wanted - 1}"


@lint
def in_hostfile(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for a host that stands twice in the file that DeepSpeed is given."""
    for each in launch.launches:
        name = launch.value(each.options.get("hostfile") or each.options.get("H"))
        text = project.beside(name) if each.tool == "deepspeed" and name else None
        hosts = [host for host, _ in ENTRY.findall(text or "")]
        twice = next((host for host in hosts if hosts.count(host) > 1), None)
        if twice is not None:
            yield Finding(
                f"{name} has {hosts.count(twice)} entries for {twice}: DeepSpeed refuses that",
                (launch.seen(each.line, f"one line for {twice}, with all of its slots"),),
                Fix(f"write one line for {twice}, with all of its slots"),
                launch.place(each.line),
            )


ENTRY = re.compile(r"^[ \t]*([^\s#]+)[ \t]+slots=(\d+)", re.MULTILINE)


@lint
def against_hostfile(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Compare what DeepSpeed is to use with what its hostfile says that there is."""
    for each in launch.launches:
        name = launch.value(each.options.get("hostfile") or each.options.get("H"))
        text = project.beside(name) if each.tool == "deepspeed" and name else None
        slots = {host: int(number) for host, number in ENTRY.findall(text or "")}
        wanted = ranks(launch, each)
        fewest = min(slots, key=slots.__getitem__, default="")
        included = launch.value(each.options.get("include") or each.options.get("i")) or ""
        asked = [part.partition(":")[0].strip() for part in included.split("@")] if included else []
        stranger = next((host for host in asked if host not in slots), None)
        if slots and wanted is not None and wanted > slots[fewest]:
            said, right = f"--num_gpus={wanted}, and {name} has {slots[fewest]} slots for {fewest}", f"slots={wanted}"
        elif slots and stranger is not None:
            said, right = f"--include names {stranger}, which {name} does not: DeepSpeed refuses that", fewest
        else:
            continue
        yield Finding(
            said,
            (launch.seen(each.line), Evidence(f"{fewest} slots={slots[fewest]}", right, name or "")),
            Fix("let the options and the hostfile name the same hosts, with the GPUs that each has"),
            launch.place(each.line),
        )


@lint
def in_configuration(launch: LaunchScript) -> Iterator[Finding]:
    """Compare the numbers of a configuration of Accelerate with each other."""
    for document in launch.documents:
        given = {name: value for name, value in document.entries if not value.entries and not value.items}
        if not {"distributed_type", "num_processes"} <= given.keys():
            continue
        numbers = {name: int(node.text) for name, node in given.items() if node.text.isdecimal()}
        machines, rank, ranks = (numbers.get(each) for each in ("num_machines", "machine_rank", "num_processes"))
        if machines is None:
            continue
        if ranks is not None and ranks < machines and given["distributed_type"].text in SEVERAL:
            said = f"{ranks} ranks on {machines} machines: num_processes counts those of all machines"
            mend, line = "num_processes is the number of machines times the GPUs of each", given["num_processes"].line
        elif rank is not None and rank >= machines > 1:
            said, mend = f"machine_rank {rank} is none of {machines} machines", f"machine_rank from 0 to {machines - 1}"
            line = given["machine_rank"].line
        else:
            continue
        yield Finding(said, (launch.seen(line, mend), launch.seen(given["num_machines"].line)), Fix(mend),
                      launch.place(line))  # fmt: skip


SEVERAL = {"MULTI_GPU", "MULTI_CPU", "MULTI_XPU", "MULTI_NPU", "DEEPSPEED", "FSDP", "MEGATRON_LM"}
"""Kinds of distribution of which each machine has a rank or more."""


@lint
def in_header(launch: LaunchScript) -> Iterator[Finding]:
    """Compare the tasks of a batch script with its nodes."""
    tasks, wanted, header = launch.count("ntasks"), launch.count("nodes"), launch.header("ntasks")
    if tasks is None or wanted is None or header is None or tasks >= wanted:
        return
    yield Finding(
        f"{tasks} task{'s' * (tasks > 1)} on {wanted} nodes: Slurm takes {tasks} node{'s' * (tasks > 1)}",
        (launch.seen(header.line, f"--ntasks={wanted} or more"),),
        Fix("ask for the tasks of a node", diff=f"-{launch.lines[header.line - 1]}\n+#SBATCH --ntasks-per-node=1"),
        launch.place(header.line),
    )
