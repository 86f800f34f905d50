"""Which lines of a script write a file anew, as each rank comes to them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import by_parameter, default_of, given, keyword

from .._shared_path import depends_on_rank

if TYPE_CHECKING:
    from ddpdoctor.check import Script

WRITERS = ("open", "matplotlib.pyplot.savefig", "numpy.save", "numpy.savez", "numpy.savetxt", "numpy.memmap")
OPENERS = {"open", "logging.FileHandler"}
"""Writers that begin a file anew where they are told to."""
SECOND = ("torchvision.utils.save_image",)
"""Writers whose path comes second."""
ANEW = {"w", "wb", "w+"}
"""Modes that begin a file anew."""
METHODS = {"savefig", "to_csv"}
"""Methods of figures and data frames that write a file."""
TOKENIZERS = ("tokenizers.Tokenizer",)
"""What has a method ``save`` that writes a file."""
OPTIONS = re.compile(
    r"dumps?\((?:(?:vars|asdict)\()?(?:\w+\.)?_?"
    r"(?:args?|opts?|options?(?:_dict)?|params|config|cfg|conf|hy?params|hyps?|flags)\b"
)
"""What writes the options of a run, which are the same on all ranks, and are read by people."""


def written(script: Script) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls that write a file anew, with its path, which is the same on all ranks, whether it fails or not.

    Left out is what is written of the options of a run, or alike on all ranks, and what follows a result of some ranks.
    """
    of_objects = [each for each in script.nodes(ast.Call) if _is_method(script, each)]
    for call in (*script.calls(*WRITERS, *OPENERS - {"open"}, *SECOND), *of_objects):
        own = opened_by_itself(call)
        path = own or (given(call, 1, "fp") if script.resolve(call.func) in SECOND else given(call, 0, "file"))
        if path is None or not (own or is_anew(call, script.resolve(call.func) or script.code(call.func))):
            continue
        if depends_on_rank(script, path) or "devnull" in script.code(path) or is_caught(script, call):
            continue
        if not (_writes_options(script, call) or _writes_alike(script, call) or _follows_result_of_some(script, call)):
            yield call, path


def opened_by_itself(call: ast.Call) -> ast.expr | None:
    """Return the path that is told to begin its file anew: ``path.open("w")``; of others the mode comes second."""
    match call:
        case ast.Call(func=ast.Attribute(value=path, attr="open"), args=[ast.Constant(value=str(mode))]) if (
            mode in ANEW
        ):
            return path
    return None


def written_by_helpers(script: Script) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls of functions of the file that write a file anew whose path they are given, with that path."""
    inner: dict[ast.AST, str] = {}
    for call, path in written(script):
        function = script.function(call)
        if isinstance(path, ast.Name) and isinstance(function, ast.FunctionDef):
            is_rankish = any(each.is_rankish(script.tree) for each in script.guards(call))
            if not is_rankish and path.id in {each.arg for each in function.args.args}:
                inner[function] = path.id
    for call in script.nodes(ast.Call) if inner else ():
        found = script.defined(call.func)
        name = inner.get(found[1]) if found is not None and found[0] is script.tree else None
        if found is None or name is None or not isinstance(found[1], ast.FunctionDef):
            continue
        given_path = by_parameter(found[1], call).get(name)
        if given_path is not None and not (depends_on_rank(script, given_path) or is_caught(script, call)):
            yield call, given_path


def _follows_result_of_some(script: Script, call: ast.Call) -> bool:
    """Whether a function has returned before what only some ranks fill: the others can have failed at its result."""
    for node in script.nodes(ast.Assign):
        if script.function(node) is not script.function(call) or node.lineno > call.lineno:
            continue
        made = script.called(node.value) if isinstance(node.value, ast.Call) else None
        if made is not None and any(_is_filled_by_some(script, each) for each in script.returned(node.value)):  # type: ignore[arg-type]
            return True
    return False


def _is_filled_by_some(script: Script, value: ast.expr) -> bool:
    """Whether a returned variable gets something, or has a method called, behind a test that can depend on the rank."""
    if not isinstance(value, ast.Name):
        return False
    same = [each for each in script.nodes(ast.Name) if each.id == value.id]
    for node in (each for each in same if script.function(each) is script.function(value)):
        is_receiver = isinstance(script.tree.parents.get(node), ast.Attribute)
        if (isinstance(node.ctx, ast.Store) or is_receiver) and any(
            each.is_rankish(script.tree) for each in script.guards(node)
        ):
            return True
    return False


def _writes_alike(script: Script, call: ast.Call) -> bool:
    """Whether a file is only made empty (``with open(path, "w"): pass``), or given what is written out in the source.

    That leaves the same on all ranks.
    """
    statement = script.tree.statement(call)
    return isinstance(statement, ast.With) and all(map(_is_literal, statement.body))


def _is_literal(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Call(func=ast.Attribute(attr="write"), args=[ast.Constant()])):
            return True
    return False


def _writes_options(script: Script, call: ast.Call) -> bool:
    """Whether what is written are the options of the run, which are the same on all ranks, and nobody waits for."""
    statement = script.tree.statement(call)
    return statement is not None and OPTIONS.search(ast.unparse(statement)) is not None


def is_anew(call: ast.Call, name: str) -> bool:
    """Whether a call of a writer of this full name begins the file anew, and does not read it or add to it."""
    is_mapped = name == "numpy.memmap"
    mode = given(call, 2 if is_mapped else 1, "mode")
    opens = is_mapped or name in OPENERS
    return not opens or (isinstance(mode, ast.Constant) and mode.value in ANEW)


def _is_method(script: Script, call: ast.Call) -> bool:
    """Whether a call writes a figure, data, a tokenizer or the file of a path; not one that adds to what is there."""
    function = call.func
    is_one = isinstance(function, ast.Attribute) and function.attr in METHODS and not keyword(call, "mode")
    is_own = (is_one and script.resolve(function) not in WRITERS) or opened_by_itself(call) is not None
    return is_own or saves_tokenizer(script, call)


def saves_tokenizer(script: Script, call: ast.Call) -> bool:
    """Whether a call writes the file of a tokenizer."""
    match call.func:
        case ast.Attribute(value=owner, attr="save"):
            return script.made_by(owner, *TOKENIZERS) is not None
    return False


def is_named(script: Script, path: ast.expr) -> bool:
    """Whether a literal is part of a path, here or in the variable that holds it: no object, nor left empty."""
    held = script.held(path) if isinstance(path, ast.Name) else path
    return held is not None and any(_is_text(each) or _is_text(_by_default(script, each)) for each in ast.walk(held))


def _is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(node.value)


def _by_default(script: Script, node: ast.AST) -> ast.expr | None:
    """Return what the parameter is by default that an attribute of the object is given: ``self.out = Path(out)``."""
    match script.value(node) if isinstance(node, ast.Attribute) else None:
        case (ast.Name() as named) | ast.Call(func=ast.Name(id="Path"), args=[ast.Name() as named]):
            bindings = script.tree.lookup(named.id, named)
            function = script.function(bindings[0].node) if len(bindings) == 1 else None
            if isinstance(function, ast.FunctionDef) and isinstance(bindings[0].node, ast.arg):
                return default_of(function, named.id)
    return None


def is_caught(script: Script, call: ast.Call) -> bool:
    """Whether a call stands in a try that has handlers."""
    return any(isinstance(each, ast.Try) and each.handlers for each in script.tree.above(call))
