"""The master of several nodes is localhost, which on each node is that node itself.

## What happens

Every node but the first asks itself for the store: nobody listens there ("connection refused", then the time-out), or,
where each node believes to be the first, each opens a store of its own and waits for the others in it.

## How to be sure

In a file (`ddpdoctor lint`): the number of nodes is 2 or more, and the address is localhost or 127.0.0.1, or none is
given (torchrun then takes localhost), or each node is told its own name (`srun bash -c '... $(hostname):29500'`). A
PyTorchJob of several pods that sets MASTER_ADDR to localhost is one as well. In the command of node 0 alone it is not
looked for. A script that spawns its ranks, and lets them meet on localhost, is found
where srun starts it on several nodes: then each node is a training of its own, and all write the same files.

## How to mend it

The address of the first node, the same on all of them. In a batch script of Slurm:

    export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

## Versions and sources

Source: torch.distributed documentation, "Environment variable initialization"; torchrun documentation, "Multi-node".
Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

from ...launching._launchers import nodes

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Launch, LaunchScript

AILMENT = Ailment("DDP391", Severity.ERROR)
SELF = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}  # noqa: S104 - what people write
ADDRESSES = ("master-addr", "rdzv-endpoint", "main-process-ip")
FIRST = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look at the address that each launcher of several nodes is given."""
    if _plays_several_nodes(launch):
        return
    for each in launch.launches:
        count = nodes(launch, each)
        for name in ADDRESSES:
            address = launch.value(each.options.get(name))
            if count is None or count < 2 or address is None or address.partition(":")[0] not in SELF:  # noqa: PLR2004
                continue
            if _is_first(launch, each):
                continue
            yield Finding(
                f"{count} nodes, and --{name.replace('-', '_')} is {address}: each node looks for the master on itself",
                (launch.seen(each.line, "the address of the first node"),),
                Fix("give all nodes the address of the first one", command=f"export {FIRST}"),
                launch.place(each.line),
            )


@lint
def in_batch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look at the address that a batch script of several nodes exports to the tasks of srun."""
    header = launch.header("nodes")
    if header is None or (launch.count("nodes") or 1) < 2:  # noqa: PLR2004 - several
        return
    starts = [each for each in launch.shell.commands if each.words and each.words[0].text == "srun"]
    steps = [each for each in starts if any("python" in word.text for word in each.words)]
    for setting in launch.settings:
        if setting.name != "MASTER_ADDR" or setting.value is None or setting.command is None or not steps:
            continue
        others = [each for each in launch.settings if each.name == "MASTER_ADDR"]
        if setting.value.text in SELF and setting.command.is_certain and len(others) == 1:
            yield Finding(
                f"{header.value} nodes, and MASTER_ADDR is {setting.value.text}: each looks for the master on itself",
                (launch.seen(setting.line, "the address of the first node"), launch.seen(header.line)),
                Fix("take the name of the first node", command=f"export {FIRST}"),
                launch.place(setting.line, setting.begin),
            )


@lint
def spawned_on_each_node(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for a script that srun starts on each of several nodes, and that spawns ranks which meet on localhost."""
    header = launch.header("nodes")
    if header is None or (launch.count("nodes") or 1) < 2 or launch.header("array"):  # noqa: PLR2004 - several
        return
    for command in launch.shell.commands:
        words = [launch.value(each) or "" for each in command.words]
        script = next((each for each in words if each.endswith(".py")), "")
        if words[:1] != ["srun"] or not script or not command.is_certain or any(map(OWN_NODES.match, words)):
            continue
        text = project.beside(script) or ""
        set_to = LOCAL.findall(text)
        if not set_to or len(set_to) < text.count("MASTER_ADDR") or not project.spawns(script):
            continue
        yield Finding(
            f"{header.value} nodes, and {script} spawns ranks that meet on {set_to[0]}: each node trains for itself",
            (launch.seen(command.line, "ranks of all nodes that meet on the first"), launch.seen(header.line)),
            Fix(
                "start torchrun on each node, and let the script read its rank from the environment",
                command='srun torchrun --nnodes="$SLURM_NNODES" --nproc-per-node=gpu --rdzv-backend=c10d '
                f'--rdzv-endpoint="$(scontrol show hostnames | head -n1):29500" {script}',
            ),
            launch.place(command.line),
        )


OWN_NODES = re.compile(r"-N|--nodes\b|-w|--nodelist")
"""Options by which srun starts a step on other nodes than those of the header."""
LOCAL = re.compile(r"[\"']MASTER_ADDR[\"']\]\s*=\s*[\"'](localhost|127\.0\.0\.1)[\"']")


@lint
def no_address(launch: LaunchScript) -> Iterator[Finding]:
    """Look for a torchrun of several nodes that is told no address: it takes localhost."""
    if _plays_several_nodes(launch) or "PET_" in launch.text or launch.kind == "YAML":
        return  # torchrun reads its options from PET_NNODES and the like, which operators of Kubernetes set
    for each in launch.launches:
        count, backend = nodes(launch, each), launch.value(each.options.get("rdzv-backend"))
        if each.tool not in {"torchrun", "torch.distributed.launch"} or each.is_open or (count or 1) < 2:  # noqa: PLR2004
            continue
        if backend not in {None, "static", "c10d"} or "standalone" in each.options or _is_first(launch, each):
            continue
        if "rdzv-endpoint" in each.options or (backend != "c10d" and "master-addr" in each.options):
            continue
        wanted = "--rdzv_endpoint" if backend == "c10d" else "--master_addr"
        yield Finding(
            f"{count} nodes, and no {wanted}: each node looks for the master on itself",
            (launch.seen(each.line, f"{wanted} with the address of the first node"),),
            Fix(
                "give all nodes the address of the first one",
                command=f"export {FIRST}   # then {wanted}=$MASTER_ADDR" + (":29500" if backend == "c10d" else ""),
            ),
            launch.place(each.line),
        )


@lint
def own_name(launch: LaunchScript) -> Iterator[Finding]:
    """Look for tasks of srun that each give their own host's name."""
    for each in launch.launches:
        count = nodes(launch, each)
        for name in ADDRESSES:
            word = each.options.get(name)
            is_own = word is not None and OWN_NAME.search(word.text) and each.handed and each.scheduler == "srun"
            if word is None or not is_own or (count or 1) < 2 or each.handed is None or each.handed.is_open:  # noqa: PLR2004
                continue
            yield Finding(
                f"{count} nodes, and each expands --{name.replace('-', '_')}={word.text} to its own name",
                (launch.seen(word.line, "the address of the first node, expanded before srun"),),
                Fix("take the name of the first node in the batch script", command=f"export {FIRST}"),
                launch.place(word.line),
            )


@lint
def in_pods(launch: LaunchScript) -> Iterator[Finding]:
    """Look at the address that the pods of a job are given."""
    for document in launch.documents:
        kind, spec = document.get("kind"), document.get("spec")
        groups = spec.get("pytorchReplicaSpecs") if spec and kind and kind.text == "PyTorchJob" else None
        pods = 0
        for _, group in groups.entries if groups else ():
            replicas = group.get("replicas")
            pods += replicas.number if replicas and replicas.number is not None else 1
        if groups is None or pods < 2:  # noqa: PLR2004 - several
            continue
        inside = {id(each) for each in groups.walk()}
        for one in launch.containers:
            address = one.environment.get("MASTER_ADDR")
            if id(one.node) in inside and address is not None and address.text in SELF:
                yield Finding(
                    f"{pods} pods, and MASTER_ADDR is {address.text}: each looks for the master on itself",
                    (launch.seen(address.line, "none: the operator sets it to the name of the first pod"),),
                    Fix("leave MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE to the operator, which sets them"),
                    launch.place(address.line),
                )
                break


OWN_NAME = re.compile(r"\$\(\s*hostname\b|`\s*hostname\b|\$\{?(?:HOSTNAME|HOST|SLURMD_NODENAME)\b")


def _is_first(launch: LaunchScript, each: Launch) -> bool:
    word = each.options.get("node-rank") or each.options.get("machine-rank")
    return launch.value(word) == "0"


def _plays_several_nodes(launch: LaunchScript) -> bool:
    """Whether the nodes are processes of one host: started beside each other, or in a loop.

    Of a command alone it is not seen what is started beside it, unless a scheduler starts it on the nodes.
    """
    if launch.kind == "command" and not any(each.scheduler for each in launch.launches):
        return True
    return any(each.command.in_background or each.command.in_loop for each in launch.launches)
