"""Scripts that train by transformers' Trainer, and that a launcher starts once for each rank."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import keyword

from .accelerate import is_launched_with_several

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.check import Around, Script

CALLBACK = re.compile(r"transformers\.(?:\w+\.)*TrainerCallback")
TRAINER = re.compile(r"(?:transformers|trl)\.(?:\w+\.)*\w*Trainer$")
SINGLE = r"--(?:nproc[-_]per[-_]node|num[-_]gpus)[= ]1\b"
LAUNCHED = r"(?:\btorchrun|\btorch\.distributed\.(?:launch|run)|\bdeepspeed)[ \t\\]"
COMMAND = rf"{LAUNCHED}(?:(?!{SINGLE})(?:[^\n\\]|\\\n|\\.)){{0,400}}?"
"""The words of a command that starts several ranks, up to the script."""


def trainers(script: Script) -> list[ast.Call]:
    """Return the calls that make a Trainer of transformers, one of trl's, or of a class of the file that inherits."""
    found = [call for path, calls in script.all_calls().items() if TRAINER.match(path) for call in calls]
    return [*found, *(each for each in script.nodes(ast.Call) if _is_heir(script, each))]


def _is_heir(script: Script, call: ast.Call) -> bool:
    owner = script.names_class(call.func)
    return owner is not None and any(TRAINER.match(script.resolve(each) or "") for each in owner.bases)


def saved_behind_train(script: Script) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Yield where every rank calls a model's ``save_pretrained`` behind ``trainer.train()``, each with that call.

    ``trainer.save_model`` writes on one rank by itself.
    """
    made = trainers(script)
    for train in script.nodes(ast.Call):
        match train.func:
            case ast.Attribute(value=ast.Name() as owner, attr="train") if script.held(owner) in made:
                pass
            case _:
                continue
        for call in script.nodes(ast.Call):
            behind = call.lineno > train.lineno and script.function(call) is script.function(train)
            if behind and isinstance(call.func, ast.Attribute) and call.func.attr == "save_pretrained":
                is_model = MODEL.search(script.code(call.func.value)) and not keyword(call, "is_main_process")
                if is_model and script.all_ranks_reach(call):
                    yield call, train


MODEL = re.compile(r"model|peft|lora|adapter", re.IGNORECASE)
"""Names of what has weights; a tokenizer is written alike by all."""


def trains_in_ranks(script: Script, project: Around) -> bool:
    """Whether the file trains by a Trainer, and a launch script or a README starts several ranks of it by its name.

    Of ``accelerate launch``, its own words say how many, or the configuration that stands beside it.
    """
    if not trainers(script):
        return False
    launched = project.in_launches(rf"{COMMAND}(?<![\w-]){re.escape(script.name)}\b")
    return launched or is_launched_with_several(script, project)


def runs_in_ranks(script: Script, project: Around) -> bool:
    """Whether the file runs once for each rank: it makes the group itself, or its Trainer does where it is launched."""
    return script.runs_in_ranks or trains_in_ranks(script, project)


def in_callbacks(script: Script) -> Iterator[ast.Call]:
    """Yield the calls to which every rank comes in the callbacks of a Trainer: it asks those of each process."""
    for owner in script.nodes(ast.ClassDef):
        if not any(CALLBACK.fullmatch(script.resolve(base) or "") for base in owner.bases):
            continue
        methods = {each.name: each for each in owner.body if isinstance(each, ast.FunctionDef)}
        reached = {name for name in methods if name.startswith("on_")}
        waiting = [*reached]
        while waiting:
            for call in _open_to_all(script, methods[waiting.pop()]):
                yield call
                match call.func:
                    case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in methods and name not in reached:
                        reached.add(name)
                        waiting.append(name)


def _open_to_all(script: Script, method: ast.FunctionDef) -> Iterator[ast.Call]:
    """Yield the calls of a method that no test keeps from a rank."""
    for call in script.inside(*method.body):
        if isinstance(call, ast.Call) and not any(each.is_rankish(script.tree) for each in script.guards(call)):
            yield call
