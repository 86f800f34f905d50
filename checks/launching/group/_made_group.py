"""Who has made the process group before a script's own call: a framework that runs it, or that it has called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.check import ACCELERATOR, INIT, NO_PYTHON, Fix, Place, Script, keyword

from ..._frameworks.ray import training_functions


@dataclass(frozen=True, slots=True)
class Maker:
    """Who has made the group before the script's own call, and how that call is left to it."""

    who: str
    fix: Fix


RAY = Maker(
    "Ray Train",
    Fix(
        "leave it out: Ray Train makes the group before it calls the function; TorchTrainer's "
        'torch_config=TorchConfig(backend="gloo") tells it the backend',
        diff='-dist.init_process_group("gloo")\n-trainer = TorchTrainer(train_func, ...)\n'
        '+trainer = TorchTrainer(train_func, torch_config=TorchConfig(backend="gloo"), ...)',
    ),
)
ACCELERATE = Maker(
    "Accelerator()",
    Fix(
        "leave it out: Accelerate makes the group, with the options that it is told",
        diff="-dist.init_process_group(backend, timeout=timeout)\n"
        "+accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend=backend, timeout=timeout)])",
    ),
)
DEEPSPEED = Maker(
    "deepspeed.init_distributed()",
    Fix(
        "leave it to DeepSpeed",
        diff='-dist.init_process_group("nccl")\n deepspeed.init_distributed("nccl")',
    ),
)
MADE_BY = (("ray/train/", RAY), ("ray\\train\\", RAY))
"""Folders of frameworks among the frames of the error, where who runs the function has made the group."""
FIRST = {ACCELERATOR: ACCELERATE, "deepspeed.init_distributed": DEEPSPEED}
"""Calls of frameworks that make the group where there is none."""


def calls_too_late(script: Script) -> Iterator[tuple[ast.Call, tuple[ast.Call | None, Maker]]]:
    """Yield the calls behind a framework's, each with what has made the group, and who."""
    functions = [*training_functions(script)] if script.calls(INIT) else []
    for call in script.calls(INIT):
        if keyword(call, "world_size") is not None or keyword(call, "rank") is not None:
            continue  # a group of its own kind, where the framework can be one of a single process
        made = _made_before(script, call)
        if made is None and script.function(call) in functions:
            made = None, RAY
        if made is not None and not any("is_initialized" in ast.unparse(each.test) for each in script.guards(call)):
            yield call, made


def maker_at(where: Place) -> Maker | None:
    """Return who had made the group before the call at a line of a file that can be read."""
    if where.file is None or where.line is None:
        return None
    try:
        text = Path(where.file).read_text(encoding="utf-8")
        script = Script(where.file, text, ast.parse(text))
    except (OSError, *NO_PYTHON):
        return None
    for call, (_, maker) in calls_too_late(script):
        if call.lineno <= where.line <= (call.end_lineno or call.lineno):
            return maker
    return None


def _made_before(script: Script, call: ast.Call) -> tuple[ast.Call | None, Maker] | None:
    """Return the call of a framework, in a statement before one in its block, that has made the group."""
    statement = script.tree.statement(call)
    block = script.tree.block(statement) if statement is not None else []
    before = block[: block.index(statement)] if statement in block else []
    for first in script.calls(*FIRST):
        made = script.tree.statement(first)
        if made in before and not any("destroy" in ast.unparse(each) for each in before[before.index(made) :]):
            return first, FIRST[script.resolve(first.func) or ""]
    return None
