"""State dicts of a source whose keys have lost the prefix ``module.``."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Tree

TAKEN_OFF = re.compile(
    r"\.replace\(['\"]module\.['\"], ?['\"]['\"](?:, ?1)?\)|\.removeprefix\(['\"]module\.['\"]\)|\[7:\]"
    r"|\[len\(['\"]module\.['\"]\):\]|consume_prefix_in_state_dict_if_present\("
)
PUT_ON = re.compile(r"['\"]module\.['\"] ?\+|f['\"]module\.\{|\.module\b")
"""What says that the same piece of code puts the prefix on as well, or asks for the model inside."""


def is_stripped(script: Script, state: ast.expr) -> bool:
    """Whether all keys of a state dict have lost the prefix: here, or in a function of the project."""
    match state:
        case ast.DictComp(key=key):
            return _takes_off(ast.unparse(key))
        case ast.Call(func=function):
            found = script.defined(function)
            return found is not None and _takes_off(ast.unparse(found[1]))
        case ast.Name(id=name):
            held = script.held(state)
            if isinstance(held, (ast.DictComp, ast.Call)) and is_stripped(script, held):
                return True
            around = script.function(state)
            return around is not None and _is_filled_so(script.tree, around, name)
    return False


PREFIXED = re.compile(r"(?:['\"]module\.['\"] ?\+ ?|f['\"]module\.\{)\w+")


def has_prefix(script: Script, tree: Tree, state: ast.expr) -> bool:
    """Whether all keys of a state dict are given the prefix, one by one: where they come from, they are without it."""
    if not isinstance(state, ast.Name) or not isinstance(
        held := script.value_in(tree, state), (ast.Dict, ast.DictComp)
    ):
        return False
    if isinstance(held, ast.DictComp):
        return PREFIXED.fullmatch(ast.unparse(held.key)) is not None
    around = tree.function(state) or tree.module
    loops = {above for each in _entries(around, state.id) for above in tree.above(each) if isinstance(above, ast.For)}
    texts = [ast.unparse(each) for each in loops]
    return bool(texts) and all(PREFIXED.search(each) and not re.search(r"\bif\b", each) for each in texts)


def _takes_off(text: str) -> bool:
    return TAKEN_OFF.search(text) is not None and not PUT_ON.search(text)


def _is_filled_so(tree: Tree, function: ast.AST, name: str) -> bool:
    """Whether a dict is filled with keys without the prefix, entry by entry, and in no other way."""
    filled = _entries(function, name)
    loops = [next((above for above in tree.above(each) if isinstance(above, ast.For)), None) for each in filled]
    return bool(filled) and all(loop is not None and _takes_off(ast.unparse(loop)) for loop in loops)


def _entries(function: ast.AST, name: str) -> list[ast.Assign]:
    """Return the statements that give a dict an entry."""
    return [
        each
        for each in ast.walk(function)
        if isinstance(each, ast.Assign)
        and isinstance(each.targets[0], ast.Subscript)
        and isinstance(each.targets[0].value, ast.Name)
        and each.targets[0].value.id == name
    ]
