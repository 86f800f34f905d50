"""Each step does what once in many steps would do: a checkpoint, a copy of the model, a new pass over the loader.

## What happens

`torch.save` in each step waits for the disk. `copy.deepcopy(model.state_dict())` copies all weights.
`next(iter(loader))` begins a pass over the data for one batch: the sampler draws the whole order anew, and workers are
started for it. `gc.collect()` looks at each object of the program, and `torch.cuda.empty_cache()` gives memory back
that the next step asks for again. `dist.all_gather_object` pickles Python objects, and unpickles those of all ranks.
`subprocess.run` waits for `nvidia-smi`, and `mlflow.log_metric` for a server. `time.sleep` in a loop that polls waits
for nothing most of the time; a log that is flushed after each line waits for the disk; a hook that computes statistics
of each layer's output runs in each forward, and one of each parameter's gradient in each backward. `torch.tensor(data)`
of a whole data set copies all of it for each batch, and `target.load_state_dict(...)` all weights. A sampler that sorts
all samples by length does so at the beginning of each epoch.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` looks every few milliseconds where the thread that trains is, and prints the
lines of the loop by their share of the time. ddpdoctor finds one of these calls where it takes a tenth of the time or
more, and 2 ms of a step, in every tenth step or more often (a new pass over a loader, and a collection of garbage, in
most of the steps that were measured). Of your own lines it reads what they call: `time.sleep`, `write`, `flush`,
`os.fsync`, `savefig`, `torch.tensor` and the like, that a function was registered as a hook (of tensors one that reads
or prints), or that it evaluates, by its name or by what it does (it sets a model to evaluate, goes through batches, and
trains on none; or the lines stand between `model.eval()` and `model.train()` in the loop itself): that three tenths of
the time, in three steps or more, and not once an epoch; where other ranks wait for one that evaluates alone,
one-rank-is-slow says so. Of a sampler it finds what your own lines take as an epoch begins, where two began within the
steps that were measured, and in such steps a file of one path alone that is read anew. Where the rank waits for a core,
that wait is left out; of an exchange the share of what the thread computes has to be as large: what another process
takes from a rank makes no finding.

## How to mend it

Do it once in many steps, as the finding says for each. Only what the training needs in each step belongs there.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: PyTorch Tutorials, "Performance Tuning Guide"; torch.distributed documentation,
`all_gather_object`; Python documentation, `gc`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ddpdoctor.check import (
    Ailment,
    EpochStarted,
    Finding,
    Fix,
    LineKind,
    LinesSampled,
    SampledLine,
    Severity,
    StepsTimed,
    Training,
    watch,
)

from .._lines import of_kind, seen
from ..source._at_line import ASLEEP, CONVERTED, EVALUATED, HOOK, READ, WRITTEN, averages
from ..waiting._alone import alone
from ._each_epoch import read_each_epoch
from ._own_code import ORDERED, in_sampler
from ._rows import LARGE, SHOWN, measured_rows, most, now_and_then, own_lines, taken

AILMENT = Ailment("DDP907", Severity.NOTE)
MOST_STEPS = 0.6  # of those measured


@dataclass(frozen=True, slots=True)
class Kind:
    """What a line does in each step: how that is said, and what is better.

    ``least``: in how many of the steps measured it is too often. A loader begins with each epoch, and Python collects
    garbage by itself.
    """

    said: str
    fix: str
    least: Callable[[int], float] = now_and_then


def in_most(steps: int) -> float:
    """Return how many steps are most of them."""
    return MOST_STEPS * steps


def several(_: int) -> float:
    """Return in how many steps there is an evaluation that takes a third of the time: a few tell how often it comes."""
    return 3


def twice(_: int) -> float:
    """Return in how many steps epochs begin that are short: one of them may begin at any time."""
    return 2


KINDS = {
    LineKind.CHECKPOINT_WRITTEN: Kind(
        "writes a checkpoint", "write a checkpoint once in many steps, or after the epoch",
    ),
    LineKind.COPIED: Kind(
        "copies with copy.deepcopy", "copy once in many steps, or only where the evaluation was better",
    ),
    LineKind.LOADER_BEGUN: Kind(
        "begins a pass over a loader", "keep one iterator for the epoch: for batch in loader, or batches = "
        "iter(loader) before the loop and next(batches) in it", least=in_most,
    ),
    LineKind.GARBAGE_COLLECTED: Kind("collects garbage", "leave it out: Python collects by itself", least=in_most),
    LineKind.CACHE_EMPTIED: Kind(
        "empties the cache of the GPU", "leave it out: the next step takes the same memory again",
    ),
    LineKind.SERVER_ASKED: Kind(
        "asks a server", "send what a hundred steps have at once, or from a thread (mlflow.log_metrics(..., "
        "synchronous=False))",
    ),
    LineKind.PROGRAM_WAITED_FOR: Kind(
        "waits for another program", "run it once in many steps, or from a thread; pynvml and psutil tell of GPUs and "
        "processes without one",
    ),
    LineKind.OBJECTS_EXCHANGED: Kind(
        "pickles and exchanges objects", "gather tensors (dist.all_gather), or once in many steps, in the same ones on "
        "all ranks",
    ),
    ASLEEP: Kind("sleeps", "wait for the thing itself (an event, a queue, a collective), or look for it less often"),
    WRITTEN: Kind(
        "writes a file", "write once in a hundred steps, without flush() and fsync() after each line, or from a thread",
    ),
    READ: Kind(
        "reads a file", "read it once, before the loop, where it is always the same; let the workers of a DataLoader "
        "read ahead where each step needs another one", least=in_most,
    ),
    CONVERTED: Kind(
        "makes a tensor of other data", "make it once, before the loop, or in the workers of a DataLoader; "
        "torch.from_numpy copies nothing", least=in_most,
    ),
    LineKind.STATE_LOADED: Kind(
        "loads a state dict", "do it once in many steps, or copy the tensors with one call (torch._foreach_copy_)",
    ),
    EVALUATED: Kind("evaluates", "evaluate less often, once an epoch or in a run of its own", least=several),
    ORDERED: Kind(
        "draws up the order of the samples", "keep what is the same in each epoch (lengths, a sorted order), from the "
        "sampler's __init__ on, and only shuffle in __iter__", least=twice,
    ),
    HOOK: Kind(
        "runs a hook", "let it return at once but for one step in a hundred, or remove it (handle.remove())",
    ),
}  # fmt: skip


OF_OWN_CODE = {ASLEEP, CONVERTED, EVALUATED, HOOK, ORDERED, READ, WRITTEN}
IN_PLACE = (
    "copy nothing: update the average of the weights in place, in one call (AveragedModel(model, "
    "multi_avg_fn=get_ema_multi_avg_fn(0.999)) of torch.optim.swa_utils)"
)
OFTEN = 0.8  # passes over the loader for each evaluation: one an epoch
AS_USUAL = 0.3  # of the time: who evaluates for less may want that, and in each step it is part of the training


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for such a line on any rank: the others wait for it."""
    for name, kind in KINDS.items():
        own = own_lines(training, name) if name in OF_OWN_CODE else ()
        lines = (each for each in of_kind(training, name) if not in_sampler(each[-1]))
        found = measured_rows(event, training, (*lines, *own), kind.least)
        if not found:
            continue
        part, rank, told, line = most(found)
        each_step = line.steps >= in_most(told.steps)
        work = taken(training, part, rank, statistics.median if each_step else statistics.mean)
        if not work.is_much(AS_USUAL if name == EVALUATED else LARGE):
            continue
        if name == EVALUATED and (each_step or _is_as_usual(event, training, told, line, len(found))):
            continue
        yield Finding(
            f"{line.inner_file}:{line.inner_line} {kind.said} in "
            f"{'each step' if each_step else f'{line.steps} of {told.steps} steps'}: "
            f"{work.text('' if each_step else ' a step')}",
            tuple(
                seen(number, told, each, "" if at else "once in many steps")
                for at, (_, number, told, each) in enumerate(found[:SHOWN])
            ),
            Fix(f"{_fix(name, kind, line)}: {work.promise}, or less"),
            work.place(line.inner_file, line.inner_line, len(found), event),
        )
    yield from read_each_epoch(event, training, MOST_STEPS)


def _fix(name: str, kind: Kind, line: SampledLine) -> str:
    """Return what is better; a copy that an average of the weights is made of is none that once in many steps does."""
    return IN_PLACE if name == LineKind.COPIED and averages(line.inner_file, line.inner_line) else kind.fix


def _is_as_usual(event: StepsTimed, training: Training, told: LinesSampled, line: SampledLine, ranks: int) -> bool:
    """Whether an evaluation comes once an epoch, or is one that the other ranks wait for, and is told as such."""
    passes = len(training.of(EpochStarted, training=True, rank=event.ranks[0].rank))
    if passes * told.steps >= OFTEN * line.steps * event.ranks[0].steps:
        return True
    waited_for = alone(event, training) if ranks < len(event.ranks) else None
    return waited_for is not None and (waited_for.line.file, waited_for.line.line) == (line.file, line.line)
