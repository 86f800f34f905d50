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
        function = script.names_function(named) if named is not None else None
        if function is not None and _has_several(script, call):
            yield function


def _has_several(script: Script, call: ast.Call) -> bool:
    scaling = keyword(call, "scaling_config")
    made = script.made_by(scaling, *SCALING) if scaling is not None else None
    number = keyword(made, "num_workers") if made is not None else None
    value = script.value(number) if number is not None else None
    if isinstance(value, ast.Attribute) and (option := script.options().get(value.attr)) is not None:
        value = keyword(option, "default")
    match value:
        case ast.Call(func=ast.Attribute(attr="get"), args=[_, else_]):
            value = else_  # of settings that say nothing else
    return isinstance(value, ast.Constant) and isinstance(value.value, int) and value.value > 1
