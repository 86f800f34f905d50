"""Where a source loads what it saves, into which model."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import keyword

from ._stripped import has_prefix

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree, Wrap

PREFIX_REMOVED = r"module\.[\"']|consume_prefix_in_state_dict_if_present"
NESTED = 4  # expressions that are followed from load_state_dict to torch.load


def key_of(what: ast.expr, node: ast.AST) -> str | None:
    """Return the key under which a dict that is saved has an expression; empty where that is saved alone."""
    if what is node:
        return ""
    pairs = zip(what.keys, what.values, strict=True) if isinstance(what, ast.Dict) else ()
    keys = [key.value for key, value in pairs if value is node and isinstance(key, ast.Constant)]
    return keys[0] if len(keys) == 1 and isinstance(keys[0], str) else None


def into_bare(script: Script, save: ast.Call, key: str | None) -> ast.Call | None:
    """Return where a model that is not wrapped loads what a call saves under a literal path, and this key."""
    path = _path(script, save.args[1]) if len(save.args) > 1 else None
    if path is None or key is None or re.search(PREFIX_REMOVED, script.text):
        return None
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(value=model, attr="load_state_dict"), args=[state]):
                strict = keyword(call, "strict")
                if strict is None and _loaded_from(script, state) == (path, key) and _is_bare(script, model):
                    return call
    return None


def _path(script: Script, node: ast.expr) -> str | None:
    """Return a path that is written out."""
    held = script.value(node)
    return held.value if isinstance(held, ast.Constant) and isinstance(held.value, str) else None


def _loaded_from(script: Script, node: ast.expr) -> tuple[str, str] | None:
    """Return the path of the file that an expression was loaded from, and the key in it."""
    key = ""
    for _ in range(NESTED):
        match node:
            case ast.Subscript(value=inner, slice=ast.Constant(value=str(name))) if not key:
                key, node = name, inner
            case ast.Name():
                held = script.held(node)
                if held is None:
                    return None
                node = held
            case ast.Call(args=[where, *_]) if script.resolve(node.func) == "torch.load":
                path = _path(script, where)
                return (path, key) if path is not None else None
            case _:
                return None
    return None


TAKES_OFF = r"module\.[\"']|[\"']module[\"']|consume_prefix_in_state_dict_if_present|set_model_state_dict"
"""What says that somebody takes the prefix off, or knows of it."""
OTHERS = re.compile(r"optim|sched|scaler|warmup", re.IGNORECASE)
"""Names of what else has a state to load."""


def can_be_loaded_back(script: Script, project: Around, wrap: Wrap) -> bool:
    """Whether code in reach can load what the wrapper saves as it is, or takes the prefix off."""
    if project.does(TAKES_OFF):
        return True
    for tree in (script.tree, *(each for _, each in project.trees("load_state_dict"))):
        for named in tree.members.get("load_state_dict", ()):
            call = tree.parents[named]
            if not isinstance(call, ast.Call) or call.func is not named or len(call.args) != 1 or not strictly(call):
                return True
            if has_prefix(script, tree, call.args[0]):
                continue
            if call.keywords:
                return True
            if not (_is_another_state(script, tree, call, named.value) or _is_wrapped_later(tree, named, wrap)):
                return True
    return any(_loads_wrapped(script, each) for each in project.near("load_state_dict"))


def _loads_wrapped(script: Script, tree: Tree) -> bool:
    """Whether another script loads a file into a model that it has wrapped: the keys of what is saved so are right."""
    return any(
        not isinstance(named.value, ast.Attribute) and script.wrap_in(tree, named.value) is not None
        for named in tree.members.get("load_state_dict", ())
    )


def _is_another_state(script: Script, tree: Tree, call: ast.Call, owner: ast.expr) -> bool:
    """Whether an optimizer or the like loads, the model within a wrapper, or somebody what was never in a file."""
    if OTHERS.search(ast.unparse(owner)) or (isinstance(owner, ast.Attribute) and owner.attr == "module"):
        return True
    match script.value_in(tree, call.args[0]):
        case ast.Call(func=ast.Attribute(attr="state_dict")):
            return True
    return False


def _is_wrapped_later(tree: Tree, named: ast.Attribute, wrap: Wrap) -> bool:
    """Whether the variable that loads holds the bare model, which is wrapped further down in the same function."""
    if wrap.call not in tree.parents or not wrap.call.args or not isinstance(named.value, ast.Name):
        return False
    is_same = ast.unparse(wrap.call.args[0]) == named.value.id and tree.scope(named) is tree.scope(wrap.call)
    return is_same and named.lineno < wrap.line


def strictly(call: ast.Call) -> bool | None:
    """Whether keys that do not fit are refused, of a call of load_state_dict; None where that is not written out."""
    match [each for each in call.keywords if each.arg != "assign"]:
        case []:
            return True
        case [ast.keyword(arg="strict", value=ast.Constant(value=bool(strict)))]:
            return strict
    return None


OF_A_GPU = re.compile(r"cuda(?!\.device_count)", re.IGNORECASE)
"""A test whether there is a GPU: all machines that train answer it alike."""


def _is_bare(script: Script, node: ast.expr) -> bool:
    """Whether a variable holds a model that is made before a line, and is wrapped in DDP on no way to it."""
    wrap = script.wrap(node)
    if not isinstance(node, ast.Name) or (wrap is not None and wrap.kind != "DataParallel"):
        return False
    if wrap is not None:
        return not wrap.sure and not any(OF_A_GPU.search(script.code(each.test)) for each in script.guards(wrap.call))
    made = script.held(node)
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in {"to", "cuda"}:
        made = made.func.value
    if not isinstance(made, ast.Call):
        return False
    helper = script.defined(made.func)
    return "Parallel" not in ast.unparse(helper[1]) if helper is not None else script.resolve(made.func) is None
