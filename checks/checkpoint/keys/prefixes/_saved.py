"""What a source saves: handed to torch.save itself, or to a function of the project that hands it on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Script


def saved(script: Script) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls that save, each with what is saved."""
    for call in script.nodes(ast.Call):
        if not call.args or isinstance(call.args[0], ast.Starred):
            continue
        if script.resolve(call.func) == "torch.save":
            yield call, _held(script, call.args[0])
        elif "state_dict" in script.code(call):
            place = _handed_on(script, call)
            if place is not None and place < len(call.args):
                yield call, call.args[place]


def _held(script: Script, what: ast.expr) -> ast.expr:
    """Return the dict, or the state dict, that a variable was given which is saved; else the expression itself."""
    held = script.held(what) if isinstance(what, ast.Name) else None
    return held if isinstance(held, (ast.Dict, ast.Call)) else what


def _handed_on(script: Script, call: ast.Call) -> int | None:
    """Return the place of the argument that the function of a call hands to torch.save."""
    found = script.defined(call.func)
    if found is None or not isinstance(found[1], ast.FunctionDef):
        return None
    tree, function = found
    names = [each.arg for each in function.args.args]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    rest = function.args.vararg.arg if function.args.vararg else ""
    for node in tree.of(ast.Call):
        if tree.function(node) is function and node.args and script.names_in(tree, node.func) == "torch.save":
            match node.args[0]:
                case ast.Name(id=name) if name in names:
                    return names.index(name)
                case ast.Starred(value=ast.Name(id=name)) if name == rest and not names:
                    return 0
    return None
