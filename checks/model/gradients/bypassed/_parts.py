"""Containers of a model's layers that a source wraps in the place of the model."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import last_name

from ._to_backward import backward_of, is_call_of, is_without_gradients
from ._wrappers import is_only_asked, wrappers

if TYPE_CHECKING:
    from ddpdoctor.check import Script


PREPARES = re.compile("prepare|setup|fully_shard")
"""Names of what can make a model one of several ranks, whatever it returns."""


class PartsWrapped(NamedTuple):
    """A call that wraps a container of layers; the container, whose layers they are, and what trains that model."""

    wrap: ast.Call
    container: ast.Call
    model: str
    forward: ast.Call
    backward: ast.Call


def parts_wrapped(script: Script) -> Iterator[PartsWrapped]:
    """Yield where a container is wrapped, which nothing calls, and the model itself computes with its layers."""
    found = [*wrappers(script)]
    wrapped = {bare.id for _, _, bare in found if isinstance(bare, ast.Name)}
    wrapped |= {
        each.id
        for call in script.nodes(ast.Call)
        if PREPARES.match(last_name(call.func))
        for each in call.args
        if isinstance(each, ast.Name)
    }
    for wrap, wrapper, bare in found:
        container = _made_before(script, bare, wrap) if isinstance(bare, ast.Name) else None
        model = _whose_layers(script, container) if container is not None else None
        if container is None or model is None or model in wrapped:
            continue
        if not is_only_asked(script, wrapper, since=wrap.end_lineno or 0):
            continue
        around = script.function(wrap) or script.module
        for call in script.inside(around):
            if not isinstance(call, ast.Call) or not is_call_of(call, model) or call.lineno < wrap.lineno:
                continue
            backward = None if is_without_gradients(script, call) else backward_of(script, call, around)
            if backward is not None:
                yield PartsWrapped(wrap, container, model, call, backward)
                break


def _made_before(script: Script, name: ast.Name, wrap: ast.Call) -> ast.Call | None:
    """Return the one call that a variable holds the result of until it is wrapped."""
    before = [each.value for each in script.tree.lookup(name.id, name) if each.line < wrap.lineno]
    return before[0] if len(before) == 1 and isinstance(before[0], ast.Call) else None


def _whose_layers(script: Script, made: ast.Call) -> str | None:
    """Return the name of the one model whose layers a call puts into a container that has no forward."""
    match (script.resolve(made.func) or "").rpartition(".")[2], made.args:
        case "AttnProcsLayers", [ast.Attribute(value=ast.Name(id=model), attr="attn_processors")]:
            return model
        case "ModuleList", [ast.List(elts=layers)]:
            models = {
                each.value.id if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) else ""
                for each in layers
            }
            return models.pop() or None if len(models) == 1 else None
    return None
