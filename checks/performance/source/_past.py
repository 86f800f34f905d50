"""What a line goes through that becomes longer with each step: a list of all losses, all predictions so far."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpdoctor.check import Tree, dotted, last_name, resolve, statement_at, tree_of

from ._step_body import Body, body_of, loops_within

ADDS = {"append", "extend", "appendleft", "insert"}
JOINS = {
    "torch.cat", "torch.concat", "torch.concatenate", "torch.vstack", "torch.hstack", "numpy.append",
    "numpy.concatenate", "numpy.vstack", "numpy.hstack", "pandas.concat",
}  # fmt: skip
JOINED = {*JOINS, "torch.stack", "numpy.stack", "numpy.array", "numpy.asarray", "torch.tensor", "list", "sorted"}
DROPS = {"clear", "pop", "popleft", "popitem", "remove"}
IN_AN_INSTANT = {"len", "isinstance", "id", "type", "bool", "iter", "next", "hasattr", "getattr", "deque"}
GOES_THROUGH = {"sort", "copy", "index", "count", "values", "items", "tolist", "mean", "sum", "std", "median", "max"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Past:
    """Something that grows with each step: its name, and the line that adds to it."""

    name: str
    file: str
    line: int


@functools.cache
def past_at(file: str, number: int, outer_file: str, outer_number: int) -> Past | None:
    """Return what grows with each step and is gone through at a line, which the outer line calls; None if nothing."""
    tree = tree_of(file)
    for name, node in _gone_through(tree, number):
        if name.startswith("self."):
            added = _grows_in_class(tree, name, node)
        elif (parameter := _parameter(tree, name, node)) is not None:
            return _handed_over(*parameter, name, outer_file, outer_number)
        else:
            added = _grows_in(tree, name, body_of(tree, number))
        if added:
            return Past(name, file, added)
    return None


def _gone_through(tree: Tree, number: int) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that a line reads as a whole, and those that the loops around it in the step go through."""
    statement = statement_at(tree, number)
    if statement is None:
        return
    body = body_of(tree, number)
    heads: list[ast.AST] = [statement] if not isinstance(statement, ast.For | ast.While | ast.If | ast.With) else []
    heads += [each for each in (getattr(statement, "iter", None), getattr(statement, "test", None)) if each is not None]
    function = tree.function(statement)
    around = body or (function if isinstance(function, Function) else None)
    for loop in loops_within(tree, number, around):
        if isinstance(loop, ast.For):
            yield from _iterated(loop.iter)
    for head in heads:
        for node in ast.walk(head):
            if (name := dotted(node)) and isinstance(getattr(node, "ctx", None), ast.Load) and _whole(tree, node):
                yield name, node
    if isinstance(statement, ast.For) and statement is not body:
        yield from _iterated(statement.iter)


def _iterated(through: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    parts: Iterable[ast.expr] = [through]
    if isinstance(through, ast.Call) and isinstance(through.func, ast.Name) and through.func.id in {"zip", "enumerate"}:
        parts = through.args
    for part in parts:
        if name := dotted(part):
            yield name, part


def _whole(tree: Tree, node: ast.AST) -> bool:
    """Whether an expression is gone through where it stands: by a call, a comprehension, a comparison with ``in``."""
    parent = tree.parents.get(node)
    match parent:
        case ast.Call(func=called) if called is not node:
            return not _takes_no_time(tree, called)
        case ast.Starred() | ast.keyword():
            return True
        case ast.comprehension(iter=last) | ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[last]):
            return last is node
        case ast.Attribute(attr=attr):
            above = tree.parents.get(parent)
            return attr in GOES_THROUGH and isinstance(above, ast.Call) and above.func is parent
        case ast.List() | ast.Tuple():  # torch.cat([seen, new])
            above = tree.parents.get(parent)
            return isinstance(above, ast.Call) and (resolve(tree, above.func) or "") in JOINS
    return False


def _takes_no_time(tree: Tree, called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return called.attr in ADDS and (resolve(tree, called) or "") not in JOINS
    return isinstance(called, ast.Name) and called.id in IN_AN_INSTANT


def _parameter(tree: Tree, name: str, node: ast.AST) -> tuple[Function, int] | None:
    """Return the function whose parameter a name is, and at which place; None where it is bound otherwise."""
    function = tree.function(node)
    if not isinstance(function, Function):
        return None
    arguments = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    return (function, arguments.index(name)) if name in arguments else None


def _handed_over(function: Function, place: int, name: str, file: str, number: int) -> Past | None:
    """Return what the outer line hands over for a parameter, where that grows with each step."""
    tree = tree_of(file)
    for call in _calls_of(tree, function, statement_at(tree, number)):
        at = place - (isinstance(call.func, ast.Attribute) and function.args.args[:1] != []
                      and function.args.args[0].arg in {"self", "cls"})  # fmt: skip
        given = next((each.value for each in call.keywords if each.arg == name), None)
        if given is None and 0 <= at < len(call.args):
            given = call.args[at]
        if isinstance(given, ast.Call) and given.args and (resolve(tree, given.func) or "") in JOINED:
            given = given.args[0]
        handed = dotted(given) if given is not None else None
        if not handed or given is None:
            continue
        added = (
            _grows_in_class(tree, handed, given)
            if handed.startswith("self.")
            else _grows_in(tree, handed, body_of(tree, call.lineno))
        )
        if added:
            return Past(handed, file, added)
    return None


def _calls_of(tree: Tree, function: Function, statement: ast.stmt | None) -> list[ast.Call]:
    """Return the calls of a function in a statement; where it has none, the only one of the file."""
    inside = [node for node in ast.walk(statement) if isinstance(node, ast.Call)] if statement is not None else []
    found = [call for call in inside if last_name(call.func) == function.name]
    others = [call for call in tree.of(ast.Call) if last_name(call.func) == function.name]
    return found or (others if len(others) == 1 else [])


def _grows_in_class(tree: Tree, name: str, node: ast.AST) -> int:
    """Return the line of a method that adds to an attribute which none of the methods that use it so makes shorter."""
    owner, user = tree.class_of(node), tree.function(node)
    if owner is None or _has_an_end(tree, name, owner):
        return 0
    methods = [each for each in owner.body if isinstance(each, Function) and each.name != "__init__"]
    adding = [(each, line) for each in methods if (line := _added(tree, name, each))]
    if not adding or any(_shortened(tree, name, each) for each in [user, adding[0][0]] if each is not None):
        return 0
    return adding[0][1]


def _grows_in(tree: Tree, name: str, body: Body | None) -> int:
    """Return the line of a step that adds to a name, which nothing in the step makes shorter or makes anew."""
    if body is None or _has_an_end(tree, name, body) or _shortened(tree, name, body):
        return 0
    return _added(tree, name, body)


def _has_an_end(tree: Tree, name: str, node: ast.AST) -> bool:
    """Whether a name is bound to what drops the oldest: a ``deque`` with ``maxlen``."""
    bindings = tree.attributes.get((tree.owner(node, name), name), []) if "." in name else tree.lookup(name, node)
    if isinstance(node, ast.ClassDef):
        bindings = tree.attributes.get((node, name), bindings)
    return any("maxlen" in ast.unparse(each.value) for each in bindings if each.value is not None)


def _added(tree: Tree, name: str, body: ast.AST) -> int:
    """Return the line on which something is added to a name; 0 where there is none."""
    for node in ast.walk(body):
        match node:
            case ast.Call(func=ast.Attribute(attr=attr, value=of)) if attr in ADDS and dotted(of) == name:
                return node.lineno
            case ast.AugAssign(target=target, value=ast.List() | ast.ListComp() | ast.Tuple()):
                if dotted(target) == name:
                    return node.lineno
            case ast.Assign(targets=[target], value=value) if dotted(target) == name and _joins(tree, name, value):
                return node.lineno
    return 0


def _joins(tree: Tree, name: str, value: ast.expr) -> bool:
    """Whether a value is what a name was, and more."""
    own = any(dotted(each) == name for each in ast.walk(value))
    match value:
        case ast.Call(func=func):
            return own and (resolve(tree, func) or "") in JOINS
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return own and any(isinstance(each, ast.List | ast.ListComp) for each in (left, right))
    return False


def _shortened(tree: Tree, name: str, body: ast.AST) -> bool:
    """Whether something is taken from a name, or it is bound to what is not all of itself and more."""
    for node in ast.walk(body):
        match node:
            case ast.Call(func=ast.Attribute(attr=attr, value=of)) if attr in DROPS and dotted(of) == name:
                return True
            case ast.Delete(targets=targets):
                if any(dotted(getattr(each, "value", each)) == name for each in targets):
                    return True
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    parts = target.elts if isinstance(target, ast.Tuple) else [target]
                    at = [getattr(each, "value", each) if isinstance(each, ast.Subscript) else each for each in parts]
                    if any(dotted(each) == name for each in at) and not _joins(tree, name, value):
                        return True
    return False
