"""Two ranks use the same GPU.

## What happens

NCCL wants a GPU of its own for each rank, and refuses the second one on a host: "Duplicate GPU detected : rank 1 and
rank 0 both on CUDA device a4000" (the number is the GPU's PCI address without its points), since NCCL 2.30 "Multiple
Ranks are using the same GPU/Partition", then ncclInvalidUsage. It comes with the first collective, often a barrier or
the constructor of DDP, though the mistake is earlier: more ranks than GPUs; no set_device, so that all ranks take
cuda:0; a rank taken modulo the number of GPUs; or a launcher that showed the same GPU to two workers.

## How to be sure

Print `torch.cuda.current_device()`, `CUDA_VISIBLE_DEVICES` and `LOCAL_RANK` on each rank.

In a source (`ddpdoctor lint`): the model is moved by `.cuda()` without a number and wrapped with `device_ids` of the
rank, and neither the file nor one in its reach chooses a device; or a group over NCCL is made, no rank makes its GPU
the current one, and something takes that one: a loader that pins memory, or `torch.cuda.synchronize()`. Its thread
chooses the current GPU, and since CUDA 12 to choose a GPU makes a context on it, of some hundred megabytes. Or a model
is moved to `"cuda"` and sharded there: `fully_shard` gives a rank its GPU only where nothing has used one before.

## How to mend it

`torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before the first collective, and as many ranks
on a host as it has GPUs.

## Versions and sources

Holds for NCCL 2.5 to 2.30, torch 2.2 to 2.13. Sources: NCCL, src/init.cc; torch/distributed/device_mesh.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DDP,
    FSDP,
    FULLY_SHARD,
    INIT,
    Ailment,
    Ambiguity,
    Fact,
    Finding,
    Fix,
    Log,
    Place,
    Record,
    Severity,
    dotted,
    given,
    keyword,
    lint,
    log_pattern,
)

from ._current_gpu import named, on_current, on_current_elsewhere
from ._moved import holders, is_bare, moves

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP230", Severity.ERROR)
PAIR = r"Duplicate GPU detected ?: rank (\d+) and rank (\d+) both on CUDA device ([0-9a-f]+)"
FIX = Fix(
    "give each rank the GPU of its local rank, and start as many ranks as the host has GPUs",
    command="torchrun --nproc_per_node=$(nvidia-smi -L | wc -l) train.py",
    diff='+torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n torch.distributed.init_process_group("nccl")',
)


VLLM = r"vllm_client\.py|init_communicator|PyNcclCommunicator"
CLIENT = r"vllm_client\.py"
WARN = r"NCCL WARN \S"
BESIDE_VLLM = Fix(
    "give vLLM's server and the ranks that train GPUs of their own: the trainer's ranks and the server's are one group",
    command="CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model NAME\n"
    "CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch --num_processes 3 train.py   # or, on one GPU: vllm_mode='colocate'",
)


@log_pattern(PAIR, context=(VLLM,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield the name of the ranks and the GPU; all pairs where the log has several."""
    pairs = {found.groups(): each.proof(found, "a GPU for each rank") for each, found in log.find(PAIR)}
    pairs.setdefault(match.groups(), record.proof(match, "a GPU for each rank"))
    one, other, device = match.groups()
    others = f", and {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
    yield Finding(
        f"vLLM's server and a rank that trains use the same GPU, {_address(device)}"
        if log.first(VLLM)
        else f"ranks {other} and {one} use the same GPU, {_address(device)}{others}",
        tuple(pairs.values())[:4],
        BESIDE_VLLM if log.first(VLLM) else FIX,
        record.place if record.users else Place(rank=int(one), host=record.node),
    )


@log_pattern(r"NCCL error: invalid usage\b", context=(CLIENT, PAIR, WARN))
def of_a_server(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """TRL's trainer joins the ranks of vLLM's server, and NCCL refuses: they are to have GPUs of their own."""
    client = log.first(CLIENT)
    if client is None or log.first(PAIR) or log.first(WARN):
        return
    yield Finding(
        "NCCL refuses the group of vLLM's server and the trainer, as it does where both use one GPU",
        (record.proof(match, "a GPU for each rank of the server and of the trainer"), client[0].proof(client[1])),
        BESIDE_VLLM,
        record.place,
        ambiguity=Ambiguity(
            (
                "the server was given all GPUs, or the first, and the trainer's rank 0 uses one of them",
                "the server and the trainer have different versions of NCCL: two environments, or two hosts",
            ),
            "nvidia-smi --query-compute-apps=gpu_uuid,pid,name --format=csv   # a GPU with a process of both",
        ),
    )


@log_pattern(
    r"Multiple Ranks are using the same GPU/Partition"
    r"|detected allocations from overlapping devices from different ranks"
)
def without_names(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the wordings of NCCL 2.30 and of torch's symmetric memory, which name nobody."""
    yield Finding(
        "two ranks of this host use the same GPU", (record.proof(match, "a GPU for each rank"),), FIX, record.place
    )


def _address(device: str) -> str:
    """Write NCCL's number as a PCI address: nvidia-smi shows it so."""
    number = int(device, 16)
    return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}.{number & 0xF}"


GIVES_ONE = r"set_device|device_id\s*=|CUDA_VISIBLE_DEVICES|cuda\.device\(|gpus-per-task|gpu-bind"
"""What gives a process a GPU of its own as the current one, or shows it no other."""
SETS_DEVICE = rf"{GIVES_ONE}|cuda:\{{|cuda:%|[\"']cuda:[\"']\s*\+"
CHOOSES = rf"{GIVES_ONE}|default_device|set_default_tensor"


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a model that every rank puts on the default GPU, and wraps for the GPU of its own."""
    if script.frameworks or not script.calls(DDP) or project.does(SETS_DEVICE) or project.unknown():
        return
    for wrap in script.calls(DDP):
        devices = keyword(wrap, "device_ids")
        if not isinstance(devices, ast.List) or len(devices.elts) != 1 or wrap.args == []:
            continue
        bare = [node for node in moves(script) if is_bare(node)]
        moved = [node for node in moves(script) if not is_bare(node)]
        if bare and not moved and script.fact(devices.elts[0]) in {Fact.RANK, Fact.LOCAL_RANK}:
            yield Finding(
                f"every rank puts the model on GPU 0, and wraps it for GPU {script.code(devices.elts[0])}",
                (script.seen(bare[0], "torch.cuda.set_device(local_rank)"), script.seen(wrap)),
                Fix("choose the GPU of the rank before anything else is done with CUDA", diff=SET),
                script.place(bare[0]),
            )


SET = '+torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n dist.init_process_group("nccl")'


@lint
def of_the_first_gpu(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a group over NCCL whose ranks keep GPU 0 as the current one, and something that uses that one."""
    if script.frameworks or not script.calls(DDP) or project.does(CHOOSES) or project.unknown():
        return
    for made in script.calls(INIT):
        backend = script.constant(given(made, 0, "backend") or made)
        used = next(iter((*on_current(script), *on_current_elsewhere(script))), None)
        if backend is None or backend.value != "nccl" or used is None or not script.all_ranks_reach(made):
            continue
        yield Finding(
            f"no rank makes its GPU the current one: {named(script, used)} uses GPU 0 on each of them, which holds a "
            "CUDA context of every rank of the host",
            (script.seen(used, "torch.cuda.set_device(local_rank) before"), script.seen(made)),
            Fix("choose the GPU of the rank before anything else is done with CUDA", diff=SET),
            script.place(made),
            severity=Severity.WARNING,
        )


@lint
def before_sharding(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a model that every rank puts on the first GPU, and cuts up there."""
    if script.frameworks or project.does(rf"{CHOOSES}|init_device_mesh|local_rank|gloo") or project.unknown():
        return
    for shard in script.calls(FULLY_SHARD, FSDP):
        name = dotted(shard.args[0]) if shard.args else None
        if name is None or not script.all_ranks_reach(shard):
            continue
        before = [each for each in moves(script) if script.function(each) is script.function(shard)]
        moved = [each for each in before if each.lineno < shard.lineno and name in holders(script, each)]
        if moved and all(map(is_bare, moved)):
            yield Finding(
                f"every rank puts {name} on GPU 0, and shards it there: no rank has made a GPU of its own the current "
                "one",
                (script.seen(moved[0], "torch.cuda.set_device(local_rank) before"), script.seen(shard)),
                Fix("choose the GPU of the rank before anything else is done with CUDA", diff=SET),
                script.place(moved[0]),
            )
