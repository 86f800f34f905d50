"""What in a source uses the GPU that is the current one of its process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import keyword

from ..._scripts.source import LOADER

if TYPE_CHECKING:
    from ddpdoctor.check import Script


def on_current(script: Script) -> Iterator[ast.Call]:
    """Yield what makes a context on the current GPU: loaders that pin memory, and torch.cuda.synchronize.

    A barrier over NCCL takes the GPU of the rank's number.
    """
    for call in script.calls(LOADER, "torch.cuda.synchronize"):
        if script.all_ranks_reach(call) and (_pins(call) or not (call.args or call.keywords)):
            yield call


def on_current_elsewhere(script: Script) -> Iterator[ast.Call]:
    """Yield the calls of functions of other files that make a loader which pins memory, on every way through them."""
    for call in script.nodes(ast.Call):
        found = script.defined(call.func)
        if found is None or found[0] is script.tree or not isinstance(found[1], ast.FunctionDef):
            continue
        loaders = [each for each in ast.walk(found[1]) if isinstance(each, ast.Call) and _pins(each)]
        made = [each for each in loaders if script.names_in(found[0], each.func) == LOADER]
        if any(not script.guards_in(found[0], each) for each in made) and script.all_ranks_reach(call):
            yield call


def _pins(call: ast.Call) -> bool:
    pins = keyword(call, "pin_memory")
    return isinstance(pins, ast.Constant) and pins.value is True


def named(script: Script, call: ast.Call) -> str:
    """Return what uses the GPU, in the words of the source."""
    if script.resolve(call.func) == "torch.cuda.synchronize":
        return f"{script.code(call.func)}()"
    return "pin_memory=True" if _pins(call) else f"pin_memory=True in {script.code(call.func)}"
