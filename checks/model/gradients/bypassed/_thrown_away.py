"""Wrappers that are taken off again before anything called them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP

if TYPE_CHECKING:
    from ddpdoctor.check import Script

OF_GRADIENTS = (
    r"all_?reduce\w*\([^\n)]*(?:grad|param|flat|weight|\bp\b)"
    r"|(?:average|avg|sync\w*|reduce)_(?:grad|param|model|weight)"
)
"""What says that a script exchanges gradients or weights itself; of a loss, or a count, it says nothing."""


def thrown_away(script: Script) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    """Yield the calls that wrap a model whose wrapper nothing keeps, and where ``.module`` takes it off."""
    for wrap in script.calls(DDP):
        above = script.tree.parents[wrap]
        match above, script.tree.statement(wrap):
            case ast.Attribute(attr="module", value=value), ast.Assign(value=given) if value is wrap and given is above:
                yield wrap, above
            case _, ast.Assign(targets=[ast.Name() | ast.Attribute() as held], value=given) as made if given is wrap:
                if (off := _taken_off(script, made, script.code(held))) is not None:
                    yield wrap, off


def _taken_off(script: Script, made: ast.Assign, name: str) -> ast.Attribute | None:
    """Return ``model.module`` where a statement of the same block gives it to ``model``, before anything else reads it.

    Of a statement between them that mentions the name anything can be true: it can keep the wrapper.
    """
    block = script.tree.block(made)
    for each in block[block.index(made) + 1 :]:
        match each:
            case ast.Assign(targets=[target], value=ast.Attribute(attr="module", value=owner) as off):
                if script.code(target) == script.code(owner) == name:
                    return off
        if any(isinstance(part, ast.expr) and ast.unparse(part) == name for part in ast.walk(each)):
            return None
    return None
