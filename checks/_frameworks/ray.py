"""The function that Ray Train runs on each of several workers, as a source has it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import given, keyword

if TYPE_CHECKING:
    from ddpdoctor.check import Script

TRAINERS = ("ray.train.torch.TorchTrainer", "ray.train.torch.torch_trainer.TorchTrainer")
SCALING = ("ray.train.ScalingConfig", "ray.air.ScalingConfig", "ray.air.config.ScalingConfig")


def training_functions(script: Script) -> Iterator[ast.FunctionDef]:
    """Yield the functions of the file that Ray Train is given, where the file says that several workers run them."""
    for call in script.calls(*TRAINERS):
        named = given(call, 0, "train_loop_per_worker")
        function = _named(script, named) if named is not None else None
        if function is not None and _has_several(script, call):
            yield function


def _named(script: Script, node: ast.expr) -> ast.FunctionDef | None:
    """Return the function of the file that an expression names, or that a function of the file makes and returns."""
    made = script.value(node)
    returned = script.returned(made) if isinstance(made, ast.Call) else [node]
    found = [script.names_function(each) for each in returned]
    return found[0] if len(found) == 1 else None


def _has_several(script: Script, call: ast.Call) -> bool:
    scaling = keyword(call, "scaling_config")
    made = script.made_by(scaling, *SCALING) if scaling is not None else None
    number = keyword(made, "num_workers") if made is not None else None
    value = script.value(number) if number is not None else None
    if isinstance(value, ast.Attribute):
        value = _by_default(script, value.attr)
    match value:
        case ast.Call(func=ast.Attribute(attr="get"), args=[_, else_]):
            value = else_  # of settings that say nothing else
    return isinstance(value, ast.Constant) and isinstance(value.value, int) and value.value > 1


def _by_default(script: Script, name: str) -> ast.expr | None:
    """Return what an option of the command line, or the field of a class of settings, is where nobody says more."""
    if (option := script.options().get(name)) is not None:
        return keyword(option, "default")
    fields = [
        each.value
        for each in script.nodes(ast.AnnAssign)
        if isinstance(each.target, ast.Name) and each.target.id == name and script.tree.class_of(each) is not None
    ]
    return fields[0] if len(fields) == 1 else None
