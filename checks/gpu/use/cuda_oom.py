"""A GPU has no memory left.

## What happens

"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of ..." The message counts what this
process holds, what torch keeps in reserve, and names other processes on the same GPU. In data-parallel training look
at those first: a rank that uses cuda:0 by mistake, a checkpoint that every rank loaded on GPU 0, or somebody else's
job. Then at the batch of that rank: the longest samples decide, and ranks have different ones.

One rank alone is enough: it leaves the training, and the others stay in their collective until they time out, some
minutes later, or say "Connection closed by localRank 2". The last lines of such a log speak of NCCL only.

## How to be sure

`nvidia-smi` while it runs: which processes hold memory on that GPU. Of a log, `ddpdoctor explain` names the ranks that
ran out of memory; the time-outs of the others are listed as what followed.

## How to mend it

One GPU for each rank (`torch.cuda.set_device(local_rank)`), `map_location="cpu"` in torch.load; a
smaller batch with gradient accumulation, activation checkpointing; `expandable_segments:True` where much is reserved
and not allocated. Where one rank fails, bound the memory of a step on every rank: cap the length of samples, sort or
bucket by length. Do not catch the error on one rank only: the others have to skip the step, too.

## Versions and sources

Source: c10/cuda/CUDACachingAllocator.cpp and CUDAMallocAsyncAllocator.cpp; NCCL, src/proxy.cc; PyTorch documentation,
"CUDA semantics". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP216", Severity.ERROR)
FULL = (
    r"(?:CUDA|HIP|XPU|NPU) out of memory\. Tried to allocate(?: ([\d.]+ (?:[KMG]iB|bytes)))?"
    r"|MPS backend out of memory \(MPS allocated: [^)]*\)\. Tried to allocate"
    r"|(?:CUDA|HIP) [Ee]rror: out of memory|CUDA out of memory occurred when warming up"
    r"|torch\.(?:cuda\.)?OutOfMemoryError: (?!CUDA|HIP)"  # what the backend cudaMallocAsync says
)
NCCL = r"NCCL WARN (?:Cuda|HIP) failure (?:2 )?'out of memory'|NCCL WARN Failed to (?:CUDA|HIP) [mc]alloc"
OTHERS = r"Process \d+ has ([\d.]+ [KMG]iB) memory in use"
ITSELF = "this process has"
OWN = (
    r"Of the allocated memory ([\d.]+ [KMG]iB) is allocated by PyTorch(?:[^\n]{0,80}?,)? and "
    r"([\d.]+ [KMG]iB) is reserved"
)
ROUNDING = 0.1  # GiB
CONTEXT = 3  # GiB that a process holds beside torch's own memory, at most: CUDA's context, NCCL, libraries
SUMS = (
    r"GPU (?P<gpu>\d+); (?P<all>[\d.]+) GiB total capacity; (?P<used>[\d.]+ \w+) already allocated; "
    r"(?P<free>[\d.]+ \w+) free; (?P<own>[\d.]+ \w+) (?P<kept>reserved|cached)"
)
"""What torch says before 2.2 or so: what another process holds is not among it, and follows.

Before 1.4 it says what it keeps beside what is allocated.
"""
OUTSIDE = 3  # GiB that neither are free nor torch's own: more than a process has beside torch's memory
UNITS = {"bytes": 2**-30, "KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0}
RESERVED = r"([\d.]+) GiB is reserved by PyTorch but unallocated"
HOLDERS = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_memory,name --format=csv   # who holds it"
GPU = re.compile(r"\bGPU (\d+)(?:;| has a total)")
BY_FAIRSEQ = "fairseq-train ... --max-tokens HALF --update-freq 2"
WHOLE = r"_full_(?:pre|post)_state_dict_hook|_unshard_pre_state_dict_hook|in _gather_state_dict\b"
MUCH = 2  # GiB that torch reserved and does not use: fragments


FIRST_CALL = re.compile(r"\bin (?P<call>barrier|_lazy_init|set_device|init_process_group)\b")


def _at_the_first_call(record: Record, match: re.Match[str], call: re.Match[str]) -> Finding:
    """What CUDA or NCCL needs for itself found no room, beside what torch allocates."""
    return Finding(
        f"{call['call']}() found no memory left on the GPU for CUDA or NCCL itself",
        (record.proof(match, "some hundred MB for CUDA's context and NCCL"), record.proof(call)),
        Fix(
            "give each rank a GPU of its own that is free",
            command=HOLDERS,
            diff='+torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # before the first call\n dist.barrier()',
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "another job, or a process that was left over, holds the GPU",
                "several ranks use one GPU: no set_device, or all of them load onto cuda:0",
                "this rank's own training has filled it before",
            ),
            "nvidia-smi --query-compute-apps=pid,used_memory,gpu_bus_id --format=csv   # whose they are",
        ),
    )


@log_pattern(f"{FULL}|{NCCL}")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield what was asked for, and whether others hold memory of the same GPU."""
    if match[0].startswith("CUDA error") and (call := FIRST_CALL.search(record.text)):
        yield _at_the_first_call(record, match, call)
        return
    others, reserved = _of_others(record.text), re.search(RESERVED, record.text)
    if others is None and re.search(WHOLE, record.text):
        yield _of_the_whole_state(record, match)
        return
    fragments = reserved is not None and float(reserved[1]) >= MUCH
    sums = re.search(SUMS, record.text)
    outside = _outside(sums) if sums else 0.0
    foreign = others or (sums if outside >= OUTSIDE else None)
    gpu = GPU.search(record.text)
    left = f"no memory left on GPU {gpu[1]}" if gpu else "no GPU memory left"
    yield Finding(
        (f"{left} for {match[1]}" if match[1] else left)
        + (f"; another process holds {others[1]} of the same GPU" if others else "")
        + (f"; {outside:.1f} GiB of the GPU are held outside of this rank's torch" if foreign is sums and sums else ""),
        (
            record.proof(match, "memory for the batch, the model, its gradients and the optimizer"),
            *((record.proof(foreign, "a GPU of its own for each rank"),) if foreign else ()),
        ),
        Fix(
            "give each rank a GPU of its own, and load checkpoints to the CPU"
            if foreign
            else "let torch's reserve grow instead of breaking into fragments"
            if fragments
            else "halve the batch of each rank and accumulate gradients over two",
            command=BY_FAIRSEQ
            if "fairseq" in record.text and not foreign
            else HOLDERS
            if foreign
            else "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            if fragments
            else "",
            diff='+torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n'
            '-state = torch.load(path)\n+state = torch.load(path, map_location="cpu")'
            if foreign
            else "",
        ),
        record.place,
    )


@log_pattern(
    r"Ran out of memory in memory space (?:hbm|vmem|HBM)\. Used (?P<used>[\d.]+[KMGT]) of (?P<has>[\d.]+[KMGT]) \w+"
)
def of_a_program(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """XLA lays out the memory of a whole program before it runs."""
    yield Finding(
        f"the program that XLA has compiled needs {match['used']} of a TPU core's {match['has']} of memory",
        (record.proof(match, f"at most {match['has']}"),),
        Fix(
            "halve the batch of each process and accumulate gradients over two; or shard the model (FSDP over XLA)",
            diff="-batch_size = 32\n+batch_size = 16",
        ),
        record.place,
    )


@log_pattern(
    r"RESOURCE_EXHAUSTED: [^\n]{0,200}?(?:[Aa]ttempting to (?:allocate|reserve)|trying to allocate)"
    r" (?P<size>[\d.]+ ?[KMG]\w*)(?P<rest>[^\n]{0,300})"
)
def of_xla(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read XLA, which says so of a TPU's memory and of a GPU's."""
    where = "a TPU core" if "HBM" in match["rest"] or "TPU" in record.text else "the device"
    yield Finding(
        f"no memory left on {where} for {match['size']}",
        (record.proof(match, "memory for the batch, the model, its gradients and the optimizer"),),
        Fix(
            "halve the batch of each process and accumulate gradients over two; or shard the model (FSDP over XLA)",
            diff="-batch_size = 32\n+batch_size = 16",
        ),
        record.place,
    )


def _of_the_whole_state(record: Record, match: re.Match[str]) -> Finding:
    return Finding(
        "no GPU memory left while FSDP gathers the whole state dict, which it keeps on the GPU unless told otherwise",
        (record.proof(match, "a state dict that is moved to the CPU piece by piece"),),
        Fix(
            "gather to the CPU, on rank 0 alone; or save the shards",
            diff="+from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict\n"
            "-state = model.state_dict()\n"
            "+state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n"
            "or, with FSDP1\n"
            "+with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT,\n"
            "+                          FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):\n"
            "+    state = model.state_dict()",
        ),
        record.place,
    )


def _of_others(text: str) -> re.Match[str] | None:
    """Return what torch says of the memory of another process.

    In a container torch does not know its own number among those of the host, and names itself as it does the others:
    then the one that holds what torch says of itself, and a little more, is the rank.
    """
    named, own = list(re.finditer(OTHERS, text)), re.search(OWN, text)
    if ITSELF in text or own is None:
        return next(iter(named), None)
    used = _gib(own[1]) + _gib(own[2])
    itself = [each for each in named if -ROUNDING <= _gib(each[1]) - used <= CONTEXT]
    return next((each for each in named if each not in itself[:1]), None)


def _gib(said: str) -> float:
    value, unit = said.split()
    return float(value) * UNITS.get(unit, 0.0)


def _outside(sums: re.Match[str]) -> float:
    """Return the GiB of a GPU that neither are free nor reserved by the torch of the rank that says so."""

    def size(name: str) -> float:
        return _gib(sums[name])

    own = size("own") + (size("used") if sums["kept"] == "cached" else 0.0)
    return float(sums["all"]) - size("free") - own
