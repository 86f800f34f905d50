"""A tensor or a layer stays on one GPU while the copy of the model that uses it runs on another.

## What happens

DataParallel copies parameters, buffers and registered submodules to each GPU. What else the model holds is not
copied: a tensor kept as a plain attribute, layers in a Python list, a closure, or something made in forward by
`.cuda()` or `device="cuda:0"`. The replica on GPU 1 then meets a tensor of GPU 0: "Expected all tensors to be on the
same device, but found at least two devices, cuda:1 and cuda:0!". Under DDP the same happens to a rank that never
called `torch.cuda.set_device(local_rank)`, since `cuda` alone means GPU 0.

## How to be sure

The frames of `parallel_apply` or the words "in replica 1" stand in the traceback; its innermost line
of yours names the layer or the tensor.

## How to mend it

`self.register_buffer(...)` for tensors, `nn.ModuleList` for layers, `x.device` for what forward makes;
and `torch.cuda.set_device(local_rank)` first in each process of DDP.

## Versions and sources

Holds for torch 1.5 to 2.13. Source: torch/nn/parallel/replicate.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

from .._logs import IN_PARALLEL, REPLICA, beside
from ._devices import CONTEXT, HARD_CODED, LOOK, SPREAD, TWO_GPUS, Setting, setting

AILMENT = Ailment("DDP530", Severity.ERROR)


@log_pattern(TWO_GPUS, context=CONTEXT)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise it in a replica of DataParallel."""
    if setting(record, log) is Setting.REPLICA:
        shown = beside(record, log, REPLICA) or beside(record, log, IN_PARALLEL)
        yield _finding(record, match, "a replica of DataParallel", shown)


@log_pattern(TWO_GPUS, context=CONTEXT)
def on_a_rank(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave open which tensor it is where each rank has a process of its own."""
    if setting(record, log) is Setting.RANKS:
        ambiguity = Ambiguity(
            (HARD_CODED, "torch.cuda.set_device(local_rank) was not called, so that cuda means GPU 0", SPREAD), LOOK
        )
        yield _finding(record, match, "a rank", (), ambiguity)


@log_pattern(r"Pointer argument \(at \d+\) cannot be accessed from Triton", context=CONTEXT)
def of_a_triton_kernel(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Triton starts a kernel on the current GPU, wherever its tensors are; in a replica that is another one."""
    shown = beside(record, log, REPLICA) or beside(record, log, IN_PARALLEL)
    causes = (
        "the current GPU is another one than that of the tensors: torch.cuda.set_device(local_rank) was not called, or "
        "the kernel is in a replica of DataParallel"
    )
    yield Finding(
        "a Triton kernel runs on the current GPU, and its tensors are on another" + (" (in a replica)" * bool(shown)),
        (record.proof(match, "torch.cuda.current_device() is the GPU of the tensors"), *shown),
        Fix(
            "make the GPU of the tensors the current one around the kernel, or once for each rank",
            diff="+with torch.cuda.device(x.device):\n     kernel[grid](x, ...)\n"
            "or, in each rank\n+torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
        ),
        record.place,
        ambiguity=None if shown else Ambiguity((causes, "a tensor given to the kernel is on the CPU"), LOOK),
    )


def _finding(
    record: Record, match: re.Match[str], who: str, shown: tuple[Evidence, ...], ambiguity: Ambiguity | None = None
) -> Finding:
    return Finding(
        f"{who} uses a tensor or a layer that stays on another GPU",
        (record.proof(match, "all tensors on one GPU"), *shown),
        Fix(
            "register what the model holds, and make new tensors where the input is",
            diff="-self.mask = torch.ones(n).cuda()\n"
            '+self.register_buffer("mask", torch.ones(n))\n'
            "-self.blocks = [Block(), Block()]\n"
            "+self.blocks = nn.ModuleList([Block(), Block()])\n"
            "-torch.zeros(n).cuda()\n"
            "+torch.zeros(n, device=x.device)",
        ),
        record.place,
        ambiguity=ambiguity,
    )
