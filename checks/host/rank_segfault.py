"""A rank crashed in native code.

## What happens

Signal 11 (SIGSEGV) is a wrong memory access in compiled code: torchrun prints "failed (exitcode: -11)" or "Signal 11
(SIGSEGV) received by PID", and Python says nothing. Usual causes: an extension (custom CUDA ops, flash-attention,
apex) that was compiled for another torch, Python or GPU; two OpenMP or NCCL libraries in one process; a driver that
does not fit. Windows calls it an access violation, and ends the process with the status 3221225477 (0xC0000005).

## How to be sure

Faulthandler prints the Python line at which it happened: `python -X faulthandler`, or
PYTHONFAULTHANDLER=1 for all ranks. `ddpdoctor run` has it write that line to a file of its own, unless the script uses
faulthandler itself, and tells the line, the library and the signal (SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL).

## How to mend it

SIGSEGV: rebuild the extensions against the installed torch; leave out the library whose frame is the
innermost. TORCH_DISTRIBUTED_DEBUG=DETAIL can be the cause itself (debug-detail-crash). SIGILL: the library was built
for a newer processor. SIGFPE: it divides by a size that is zero. SIGBUS: a mapped file was cut short, or its disk is
full (mmap-file-truncated, shm-too-small).

## Versions and sources

Source: torch.distributed.elastic.multiprocessing; Python documentation, "faulthandler". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from linecache import getline

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Crashed,
    Evidence,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    Training,
    log_pattern,
    place,
    watch,
)

from ._exits import died_by, process, status_of_windows

AILMENT = Ailment("DDP159", Severity.ERROR)
DIED = (
    died_by(11, "SIGSEGV")
    + r"|Segfault encountered|Segmentation fault \(core dumped\)|Caught signal 11 \("
    # The kernel names the thread: python, or what torch calls its own.
    + r"|\b(?:python|pt_)[^\s\[]*\[\d+\]:? (?:segfault at [0-9a-f]+ ip|general protection fault)"
)
INSTRUCTION = (
    died_by(4, "SIGILL") + r"|Illegal instruction \(core dumped\)|Fatal Python error: Illegal instruction"
    r"|\btraps: (?:python|pt_)[^\n]{0,60} trap invalid opcode"
)
DIVISION = (
    died_by(8, "SIGFPE") + r"|Floating point exception \(core dumped\)|\btraps: python[^\n]{0,60} trap divide error"
)
SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}  # what faulthandler calls them
FIX = Fix(
    "call it alone, in one process, and rebuild or replace the library that it calls; what is handed to it "
    "(addresses, lengths, types) must be what it expects",
    command="PYTHONFAULTHANDLER=1 gdb -batch -ex run -ex bt --args python train.py",
)
FIXES = {
    "SIGBUS": Fix(
        "look at the file that is mapped into memory there: it was cut short or replaced after it was opened, or the "
        "disk, or /dev/shm, behind it is full",
        command="ls -l DATA; df -h DATA /dev/shm",
    ),
    "SIGILL": Fix(
        "install a build of the library for this processor, or build it here; hosts of one job can differ",
        command="grep -m1 'model name' /proc/cpuinfo; grep -owE 'avx|avx2|avx512f' /proc/cpuinfo | sort -u",
    ),
    "SIGFPE": Fix(
        "find the library by its stack: it divides by a size, a stride or a count that is zero",
        command="PYTHONFAULTHANDLER=1 torchrun --standalone --nproc_per_node=1 train.py",
    ),
}
OF_STATE = Fix(
    "ask FSDP for the state without offload_to_cpu where the model is on the CPU: it releases the gathered weights "
    "once they are moved, and there both are the same memory",
    diff="-FullStateDictConfig(offload_to_cpu=True, rank0_only=True)\n+FullStateDictConfig(rank0_only=True)",
)
STATE = re.compile(r"[/\\\\]fsdp[/\\\\]_state_dict_utils\.py$")
# Where torch itself gives up: gloo ends a process so that gets more than it expects, which other checks tell.
OF_THE_GROUP = re.compile(r"/torch/(?:distributed|autograd|nn/parallel)/")
STACK = r"Fatal Python error: Segmentation fault"


@log_pattern(DIED, context=(STACK,))
def by_exit_status(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield the name of the process, and the line that faulthandler printed."""
    stack = log.first(STACK)
    kind = "access violation" if re.search(status_of_windows(11), match[0]) else "SIGSEGV"
    yield Finding(
        f"{process(record.text)} crashed in native code ({kind})",
        (record.proof(match, "an exit by itself"), *((stack[0].proof(stack[1], "no crash"),) if stack else ())),
        Fix(
            "let faulthandler print the line, and rebuild the extension that it names against this torch",
            command="PYTHONFAULTHANDLER=1 torchrun --standalone --nproc_per_node=1 train.py",
        ),
        record.place,
        ambiguity=None
        if stack
        else Ambiguity(
            (
                "an extension that was compiled for another torch, CUDA or GPU",
                "two copies of one native library (OpenMP, NCCL, CUDA) in the process",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL",
            ),
            "PYTHONFAULTHANDLER=1 torchrun --standalone --nproc_per_node=1 train.py",
        ),
    )


@log_pattern(INSTRUCTION)
def by_instruction(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the processor: what was compiled for a newer one cannot run here."""
    yield Finding(
        f"{process(record.text)} came to an instruction that this processor does not have (SIGILL)",
        (record.proof(match, "a library that is built for this processor"),),
        FIXES["SIGILL"],
        record.place,
    )


@log_pattern(DIVISION)
def by_division(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name what SIGFPE is on the processors that trainings run on."""
    yield Finding(
        f"{process(record.text)} divided a whole number by zero in native code (SIGFPE)",
        (record.proof(match, "an exit by itself"),),
        FIXES["SIGFPE"],
        record.place,
    )


@log_pattern(STACK)
def by_faulthandler(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote what faulthandler says."""
    yield Finding(
        "a process crashed in native code (SIGSEGV); the first line of the stack below names the library",
        (record.proof(match, "no crash"),),
        Fix(
            "rebuild the library that the innermost line names against this torch, or leave it out",
            command='python -c "import torch; print(torch.__version__, torch.version.cuda)"; pip list | grep -iE '
            "'flash|apex|xformers|deepspeed|mmcv|spconv'",
        ),
        record.place,
    )


@watch(Crashed)
def while_training(event: Crashed, training: Training) -> Iterator[Finding]:
    """Yield the signal, the user's line, and the function that called into native code."""
    signal, site = SIGNALS.get(event.said), event.site
    called = event.stack[0] if event.stack else site  # a stack that the crash destroyed has no lines
    if signal is None or site is None or called is None or (signal == "SIGABRT" and OF_THE_GROUP.search(called.file)):
        return
    inside = "" if called == site else f", inside {called.file}:{called.line} ({called.function})"
    others = sum(each.said == event.said and each.site == site for each in training.of(Crashed)) > 1
    line = getline(site.file, site.line).strip()
    yield Finding(
        f"rank {event.rank} crashed in native code ({signal}) in {site.function}{inside}",
        (
            Evidence(f"Fatal Python error: {event.said}", "no crash", f"rank {event.rank}, faulthandler"),
            *((Evidence(line, "", f"{site.file}:{site.line}"),) if line else ()),
            *((Evidence("another rank crashed at the same line", "", "faulthandler"),) if others else ()),
        ),
        OF_STATE if STATE.search(called.file) else FIXES.get(signal, FIX),
        place(site, rank=event.rank),
    )
