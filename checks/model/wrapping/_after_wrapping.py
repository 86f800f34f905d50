"""What a source does to a model once it is wrapped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DDP,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Wrap


def is_whole(script: Script, model: ast.expr) -> bool:
    """Whether it is the whole model, as that of a teacher, which learns nothing; unless a part of it is to learn.

    One that is thawed as a whole again, as a discriminator is before each turn of its own, is whole in each of them.
    """
    wrap = script.wrap(model)
    if wrap is None:
        return False
    return not _thaws(script) or any(ast.dump(each) == ast.dump(model) for each in _thawed(script))


def _thaws(script: Script) -> bool:
    """Whether parameters of a model are to learn from some line on: by a method, or one after the other in a loop."""
    drawn = {each.id for loop in script.nodes(ast.For) for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    return "requires_grad_(True)" in script.text or any(
        isinstance(target, ast.Attribute)
        and target.attr == "requires_grad"
        and isinstance(each.value, ast.Constant)
        and each.value.value is True
        and (not isinstance(target.value, ast.Name) or target.value.id in drawn)
        for each in script.nodes(ast.Assign)
        for target in each.targets
    )


def _thawed(script: Script) -> Iterator[ast.expr]:
    """Yield the models, or parts of them, all of whose parameters are to learn from some line on."""
    for loop in script.nodes(ast.For):
        match loop:
            case ast.For(
                iter=ast.Call(func=ast.Attribute(value=model, attr="parameters")),
                body=[ast.Assign(targets=[ast.Attribute(attr="requires_grad")], value=ast.Constant(value=True))],
            ):
                yield model


def is_layer(script: Script, value: ast.expr) -> bool:
    path = script.resolve(value.func) if isinstance(value, ast.Call) else None
    return bool(path) and re.match(r"torch\.nn\.[A-Z]", path or "") is not None


def wrapped_before(script: Script, model: ast.expr) -> Wrap | None:
    """Return the wrap of a model, or of the one that the expression is a part of."""
    while isinstance(model, ast.Attribute):
        if model.attr == "module":
            model = model.value
            break
        model = model.value
    wrap = script.wrap(model)
    return wrap if wrap and wrap.sure and wrap.kind == "DistributedDataParallel" else None


def wrapped_again(script: Script, node: ast.AST) -> bool:
    line = getattr(node, "lineno", 0)
    return any(call.lineno > line and script.function(call) is script.function(node) for call in script.calls(DDP))
