"""CUDA was used before the rank processes were forked.

## What happens

A process that is forked inherits CUDA's state without its threads and cannot use the GPU: "Cannot re-initialize CUDA
in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method"; where torch has not seen
that CUDA was begun (another library did), the driver says "CUDA error: initialization error". Launchers that fork
look first: "Lightning can't create new processes if CUDA is already initialized", "CUDA has been initialized before
the `notebook_launcher` could create a forked subprocess". In a notebook one earlier cell is enough: a model moved to
the GPU, `torch.cuda.get_device_name()`, an import that asks for the device.

## How to be sure

The frames below the message are those of a process of your own, not of a DataLoader's worker (that is
cuda-in-dataloader-worker); `torch.cuda.is_initialized()` is True before the launch.

## How to mend it

Restart, and use CUDA inside the launched function only; start the processes with `spawn`, or with
torchrun, which does not fork your script.

## Versions and sources

Holds for all versions of torch on Linux, Lightning 1.6 and later, Accelerate 0.20 and later. Source:
torch/cuda/__init__.py, lightning/fabric/strategies/launchers/multiprocessing.py, accelerate/launchers.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

from ._forked import FROM_NOTEBOOK, LOADER, MESSAGE, PROCESS

AILMENT = Ailment("DDP451", Severity.ERROR)


@log_pattern(
    r"Lightning can['\u2019]t create new processes if CUDA is already initialized"
    r"|has been initialized before the `notebook_launcher` could create a forked subprocess"
    r"|To launch a multi-GPU training from your notebook, you need to avoid running any instruction using"
    r"|Do not use the XLA device before calling xmp\.spawn"
    r"|AssertionError: \d+ results for replica \d"
)
def by_the_launcher(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise what launchers say that look first."""
    yield _finding(record, match, ())


@log_pattern(MESSAGE, context=(LOADER, PROCESS, FROM_NOTEBOOK))
def in_a_process(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise a process of the script's own by its frames."""
    process = re.search(PROCESS, record.text)
    if re.search(LOADER, record.text) or log.first(LOADER):
        return
    if found := re.search(FROM_NOTEBOOK, record.text) or log.first(FROM_NOTEBOOK):
        shown = record.proof(found) if isinstance(found, re.Match) else found[0].proof(found[1])
        yield _of_a_notebook(record, match, shown)
    elif process:
        yield _finding(record, match, (record.proof(process),))
    elif found := log.first(PROCESS):
        yield _finding(record, match, (found[0].proof(found[1]),))


NOTEBOOK = r"in notebook_launcher\b|start_method=[\"']fork[\"']|multiprocessing[/\\]popen_fork\.py|ForkProcess-\d+"


@log_pattern(r"RuntimeError: CUDA error: initialization error", context=(NOTEBOOK, LOADER))
def by_its_driver(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise what the driver says in a process that was forked after it had begun, where the frames show a fork."""
    found = log.first(NOTEBOOK)
    if found is not None and not log.first(LOADER):
        yield _finding(record, match, (found[0].proof(found[1]),))


OF_XLA = Fix(
    "ask for the device inside of the launched function alone, and leave XLA_USE_SPMD, under which one process has all "
    "devices, out of it",
    diff="-device = xm.xla_device()\n-xmp.spawn(train, args=(device,))\n+xmp.spawn(train)\n def train(index):\n"
    "+    device = xm.xla_device()",
)


def _finding(record: Record, match: re.Match[str], shown: tuple[Evidence, ...]) -> Finding:
    is_xla = "xmp.spawn" in match[0] or "results for replica" in match[0]
    return Finding(
        f"{'the XLA device' if is_xla else 'the GPU'} was used in the parent before it forked the ranks",
        (record.proof(match, f"no use of {'the device' if is_xla else 'CUDA'} before the fork"), *shown),
        OF_XLA
        if is_xla
        else Fix(
            "use CUDA inside the launched function only, and start processes by spawn or with torchrun",
            command="torchrun --standalone --nproc_per_node=gpu train.py",
            diff='-mp.start_processes(train, nprocs=n, start_method="fork")\n+mp.spawn(train, nprocs=n)',
        ),
        record.place,
    )


def _of_a_notebook(record: Record, match: re.Match[str], shown: Evidence) -> Finding:
    """notebook_launcher forks the kernel, in which a cell, or a package that it imports, has used CUDA before."""
    return Finding(
        "the notebook's kernel had used the GPU before notebook_launcher forked the ranks from it",
        (record.proof(match, "no use of CUDA in the kernel before the launch"), shown),
        Fix(
            "restart the kernel, and use CUDA within the launched function alone: a package can use it as it is "
            "imported, so import within the function, too",
            command="python -c 'import torch, PACKAGE; print(torch.cuda.is_initialized())'   # True: by this",
            diff="-import unsloth\n-model.to('cuda')\n def train():\n+    import unsloth\n+    model.to('cuda')\n"
            "     ...\n notebook_launcher(train, num_processes=2)",
        ),
        record.place,
    )
