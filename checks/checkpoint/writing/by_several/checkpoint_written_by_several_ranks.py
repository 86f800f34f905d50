"""Several ranks write a checkpoint to one path.

## What happens

Each rank runs the same script. A `torch.save` that every rank reaches truncates the file that another rank is writing
at the same moment. What is left is a mixture or a truncated archive, on some days. Where the ranks' optimizers or
random states differ, the file holds those of the last rank that wrote.

## How to be sure

ddpdoctor (`ddpdoctor run`) sees the same line write the same path from several ranks after the same number of
optimizer steps, and shows whether the writes overlap. A path that holds the rank, and ranks that write it at
different steps, are not reported. Ranks on several hosts are compared host by host.

In a source (`ddpdoctor lint`): no test on the way to `torch.save`, or to `save_pretrained` of the model in its wrapper,
can depend on the rank, in this function and in those that call it, and nothing in the path does. A script of
Accelerate is meant for several processes where it says so (`unwrap_model`, `wait_for_everyone`), or its launch does
(`--num_processes 4`).

## How to mend it

Let rank 0 alone write, to a name beside, and rename the file when it is complete. A barrier lets the others wait
before anybody reads it.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch tutorial, "Getting Started with Distributed
Data Parallel", save and load checkpoints.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    ACCELERATOR,
    Ailment,
    Evidence,
    FileWritten,
    Finding,
    Fix,
    Severity,
    Training,
    given,
    keyword,
    last_name,
    lint,
    place,
    watch,
)

from ...._frameworks.accelerate import is_of_several_processes
from ...._frameworks.trainer import in_callbacks, saved_behind_train, trainers, trains_in_ranks
from ...._scripts.doubts import own_disks
from ...._scripts.source import is_own
from ..._whole import WHOLE
from .._by_one import fix_in, fix_of, right_in
from .._shared_path import depends_on_rank, is_reached
from ._after_fit import written_after_fit
from ._sharded_state import is_always_sharded, sharding_of

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP851", Severity.ERROR)


@watch(FileWritten)
def while_training(event: FileWritten, training: Training) -> Iterator[Finding]:
    """Look for another rank that wrote the same path at the same step, in the same line."""
    if event.site is None or event.path.startswith("/dev/"):
        return
    others = training.of(FileWritten, path=event.path, site=event.site, steps=event.steps)
    other = next((each for each in others if each.rank != event.rank), None)
    if other is None or None in (event.rank, other.rank):
        return
    first, second = sorted((event, other), key=lambda each: each.began)
    overlap = second.began < first.time
    yield Finding(
        f"several ranks write {event.path}",
        (
            Evidence(_written(first, first.began), "by one rank only", f"rank {first.rank}"),
            Evidence(
                _written(second, first.began) + (": while the other still wrote" if overlap else ""),
                "not at all",
                f"rank {second.rank}",
            ),
        ),
        fix_of(event, training),
        place(event.site),
    )


def _written(event: FileWritten, zero: float) -> str:
    return f"writes from {(event.began - zero) * 1e3:.1f} to {(event.time - zero) * 1e3:.1f} ms, at step {event.steps}"


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a torch.save or a save_pretrained that every rank comes to, into a path that is the same on all."""
    own = script.frameworks if trainers(script) else script.frameworks - {"transformers"}
    by_accelerate = own == {"accelerate"} and not script.joins
    by_trainer = script.frameworks == {"transformers"} and trains_in_ranks(script, project)
    known = {"accelerate", "horovod", *(["transformers"] if by_trainer or by_accelerate else [])}
    runs = script.runs_in_ranks or by_trainer or (by_accelerate and not script.calls(ACCELERATOR))
    if not is_own(script, known=known) or (script.frameworks and not runs):
        return
    if by_accelerate and not is_of_several_processes(script, project):
        return
    for call, path in (*((each, given(each, 1, "f")) for each in script.calls("torch.save")), *_pretrained(script)):
        joins = script.joins or bool(script.frameworks) or is_always_sharded(script)
        if path is None or not is_reached(script, call, joins=joins) or depends_on_rank(script, path):
            continue
        if (shards := sharding_of(script, call)) is not None:
            yield Finding(
                f"every rank writes its own shards to {script.code(path)}: those of one rank are left",
                (script.seen(call, "the whole state, gathered by all ranks and written by one"), script.seen(shards)),
                WHOLE,
                script.place(call),
                ambiguity=own_disks(script, project),
            )
            continue
        yield Finding(
            f"every rank writes {script.code(path)}: what one has written, another overwrites while it is read",
            (script.seen(call, right_in(script)),),
            fix_in(script, call, by_horovod=script.frameworks == {"horovod"}),
            script.place(call),
            ambiguity=own_disks(script, project),
        )


@lint
def of_callbacks(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a model that a callback of transformers' Trainer writes, which each process asks."""
    if not trainers(script) or not (trains_in_ranks(script, project) or OWN_RANK.search(script.text)):
        return
    for call in dict.fromkeys(in_callbacks(script)):
        path = given(call, 0, "save_directory") if last_name(call.func) == "save_pretrained" else None
        if script.resolve(call.func) == "torch.save":
            path = given(call, 1, "f")
        if path is not None and MODEL.search(script.code(call)) and not NAMED.search(script.code(path)):
            yield Finding(
                f"every rank writes {script.code(path)}: the Trainer asks its callbacks in each process",
                (script.seen(call, "if state.is_world_process_zero:"),),
                Fix(
                    "write it on one rank",
                    diff=f"+if state.is_world_process_zero:\n-{script.code(call)}\n+    {script.code(call)}",
                ),
                script.place(call),
            )


@lint
def behind_train(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a model that each rank writes behind the ``train`` of transformers' Trainer."""
    if not trains_in_ranks(script, project):
        return
    for call, train in dict(saved_behind_train(script)).items():
        path, trainer = given(call, 0, "save_directory"), script.code(train.func).rpartition(".")[0]
        if path is not None and not depends_on_rank(script, path):
            yield Finding(
                f"every rank goes on behind train, and writes {script.code(path)}: what one has written, another "
                "overwrites",
                (script.seen(call, f"{trainer}.save_model({script.code(path)})"), script.seen(train)),
                Fix(
                    "let the Trainer write it: on one rank, and whole where it is sharded",
                    diff=f"-{script.code(call)}\n+{trainer}.save_model({script.code(path)})",
                ),
                script.place(call),
            )


OWN_RANK = re.compile(r"\bLOCAL_RANK\b")
"""What a script reads of a launcher, which starts it once for each rank."""
MODEL = re.compile(r"model|adapter|lora|state_dict", re.IGNORECASE)
NAMED = re.compile(r"rank|process_index|uuid|getpid|tempfile|mkdtemp", re.IGNORECASE)
"""Words of a path that is another on each rank."""


@lint
def behind_fit(script: Script) -> Iterator[Finding]:
    """Look for a model that each rank of Lightning writes behind ``trainer.fit``."""
    for call, path, trainer, first in written_after_fit(script):
        if not depends_on_rank(script, path):
            yield Finding(
                f"every rank goes on behind fit, and writes {script.code(path)}: what one has written, another "
                "overwrites",
                (script.seen(call, f"if {first}:"), script.seen(trainer)),
                Fix(
                    "write it on one rank",
                    diff=f"-{script.code(call)}\n+if {first}:\n+    {script.code(call)}",
                ),
                script.place(call),
            )


def _pretrained(script: Script) -> Iterator[tuple[ast.Call, ast.expr | None]]:
    """Yield the calls of ``save_pretrained`` of what is taken out of the wrapper of a model, and their folders."""
    for call in script.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "save_pretrained":
            told = keyword(call, "is_main_process") or keyword(call, "save_function")
            if (told is None or ast.unparse(told) == "True") and _is_unwrapped(script, call.func.value):
                yield call, given(call, 0, "save_directory")


def _is_unwrapped(script: Script, node: ast.expr) -> bool:
    """Whether an expression is the model within a wrapper: ``net.module if hasattr(net, "module") else net``."""
    match script.held(node) or node:
        case ast.IfExp(test=ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Constant(value="module")])):
            return True
        case ast.Attribute(value=inner, attr="module"):
            return script.wrap(inner) is not None
        case ast.Call(func=ast.Attribute(attr="unwrap_model")):
            return True
    return False
