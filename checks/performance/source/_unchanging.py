"""Statements of a forward, or of a step, that make the same tensor in each step: a mask, a table of positions."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence

from ddpdoctor.check import Tree, last_name, statement_at, tree_of

from ._fixed import is_fixed, is_left_alone
from ._step_body import body_of

DEEPEST = 3  # functions that call each other
ALLOCATES = {"zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "zeros_like", "ones_like", "size"}
"""What is done at once: a copy that is kept is no faster."""
Block = Sequence[ast.stmt]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def made_anew(file: str, number: int) -> int:
    """Return the line of the first statement of those around a line that make the same in each step; 0 where none."""
    tree = tree_of(file)
    statement = statement_at(tree, number)
    if statement is None:
        return 0
    unit = _unit(tree, number, statement)
    found = [each for each in _unchanging(tree, unit) if _makes(each)] if unit is not None else []
    around = any(each.lineno <= number <= (each.end_lineno or 0) for each in found)
    return found[0].lineno if around else 0


def _unit(tree: Tree, number: int, statement: ast.stmt) -> ast.For | Function | None:
    """Return the loop that makes the steps, where the line stands in it, or its function."""
    body = body_of(tree, number)
    if isinstance(body, ast.For) and body is not statement:
        return body
    function = tree.function(statement)
    if not isinstance(function, Function) or body is not None or function.name in {"__init__", "__getitem__"}:
        return None
    return None if any("cache" in ast.unparse(each) for each in function.decorator_list) else function


def _unchanging(tree: Tree, unit: ast.For | Function, depth: int = DEEPEST) -> list[ast.stmt]:
    names = Names(tree, unit, depth)
    return [each for each in names.flat if names.keeps(each)]


def _makes(statement: ast.stmt) -> bool:
    """Whether a statement computes something that it leaves: not where it only reads sizes, or allocates."""
    if isinstance(statement, ast.For):
        return True
    value = getattr(statement, "value", None)
    return value is not None and any(
        isinstance(node, ast.BinOp | ast.Compare)
        or (isinstance(node, ast.Call) and last_name(node.func) not in ALLOCATES)
        for node in ast.walk(value)
    )


class Names:
    """The names of a function, or of a loop that makes steps, that have the same value in each step."""

    def __init__(self, tree: Tree, unit: ast.For | Function, depth: int) -> None:
        """Take away what a statement that reads something else binds or changes, until nothing is left to take."""
        self.tree, self.unit, self.depth = tree, unit, depth
        self.flat = list(_flat(unit.body))
        stored = {each for statement in unit.body for each in _stored(statement)}
        self.given = _parameters(unit)
        self.local = stored | self.given.keys()
        self.varying = {name for name in self.given if not self._is_given_the_same(name)}
        if isinstance(unit, ast.For):
            self.varying |= set(_stored(unit)) - stored | _carried(self.flat, stored)
        declared = [each for each in self.flat if isinstance(each, ast.Global | ast.Nonlocal)]
        self.varying |= {name for each in declared for name in each.names}
        before = -1
        while before != len(self.varying):
            before = len(self.varying)
            for each in self.flat:
                if not self.keeps(each):
                    self.varying |= set(_changed(each))

    def is_fixed(self, name: ast.Name) -> bool:
        """Whether a name has the same value in each step."""
        if name.id in self.local:
            return name.id not in self.varying
        bindings = self.tree.lookup(name.id, self.unit)
        if len(bindings) != 1 or not isinstance(bindings[0].node, ast.Assign | ast.AnnAssign):
            return False
        value = bindings[0].value
        if value is None or not is_left_alone(self.tree, name.id, value):
            return False
        return is_fixed(self.tree, value, lambda _: False)

    def keeps(self, statement: ast.stmt) -> bool:  # noqa: PLR0911 - one a kind
        """Whether a statement does the same in each step, and changes nothing but names of its own."""
        match statement:
            case ast.For(iter=through, body=body, orelse=[]):
                return self._is(through) and all(self.keeps(each) for each in body)
            case ast.If(test=test, body=body, orelse=other):
                return self._is(test) and all(self.keeps(each) for each in (*body, *other))
            case ast.Assign(targets=targets, value=value):
                return self._is(value) and all(self._is_own(each) for each in targets)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value):
                return self._is(value) and self._is_own(target)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name))) as call):
                return name in self.local and self._is(call)
            case ast.Return(value=ast.expr() as value):
                return self._is(value)
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert():
                return True
        return False

    def _is(self, node: ast.expr) -> bool:
        return is_fixed(self.tree, node, self.is_fixed)

    def _is_own(self, target: ast.expr) -> bool:
        match target:
            case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)) if name in self.local:
                index = target.slice if isinstance(target, ast.Subscript) else None
                return name not in self.varying and (index is None or self._is(index))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return all(self._is_own(each) for each in parts)
        return False

    def _is_given_the_same(self, name: str) -> bool:
        """Whether all who call the function by its name in the file give it the same in each step."""
        if not self.depth or not isinstance(self.unit, Function):
            return False
        calls = [each for each in self.tree.of(ast.Call) if last_name(each.func) == self.unit.name]
        place = self.given[name]
        return bool(calls) and all(self._gives_the_same(call, name, place) for call in calls)

    def _gives_the_same(self, call: ast.Call, name: str, place: int) -> bool:
        given = next((each.value for each in call.keywords if each.arg == name), None)
        if given is None and 0 <= place < len(call.args):
            given = call.args[place]
        if given is None:
            return not any(isinstance(each, ast.Starred) for each in call.args) and _default(self.unit, name)
        caller = _unit(self.tree, call.lineno, self.tree.statement(call) or self.unit)
        if caller is None or caller is self.unit:
            return isinstance(given, ast.Constant)
        return is_fixed(self.tree, given, Names(self.tree, caller, self.depth - 1).is_fixed)


def _flat(body: Block) -> Iterator[ast.stmt]:
    """Yield the statements of a block, those of a ``with`` in its place, and of a loop after it."""
    for each in body:
        if isinstance(each, ast.With):
            yield from _flat(each.body)
            continue
        yield each
        for name in ("body", "orelse", "finalbody") if not isinstance(each, Function | ast.ClassDef) else ():
            yield from _flat(getattr(each, name, []))


def _stored(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id


def _changed(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds, and those in whose objects it can change something."""
    own = [statement] if not hasattr(statement, "body") else [getattr(statement, "target", None)]
    for each in own:
        yield from _stored(each) if each is not None else ()
    for node in ast.walk(statement) if not hasattr(statement, "body") else ():
        match node:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if _changes(attr, statement):
                yield name
            case ast.Call(args=args) if isinstance(statement, ast.Expr) and statement.value is node:
                yield from (each.id for each in args if isinstance(each, ast.Name))


def _changes(method: str, statement: ast.stmt) -> bool:
    return method.endswith("_") or isinstance(statement, ast.Expr)


def _carried(flat: Sequence[ast.stmt], stored: set[str]) -> set[str]:
    """Return the names that a step reads before it binds them: they come from the step before."""
    found: set[str] = set()
    bound: set[str] = set()
    for each in flat:
        here = [node for node in ast.walk(each) if isinstance(node, ast.Name)]
        reads = {node.id for node in here if isinstance(node.ctx, ast.Load)}
        if isinstance(each, ast.AugAssign):
            reads |= set(_stored(each.target))
        found |= (reads & stored) - bound
        bound |= {node.id for node in here if isinstance(node.ctx, ast.Store)}
    return found


def _parameters(unit: ast.For | Function) -> dict[str, int]:
    """Return the places of a function's parameters, without ``self``; -1 where one has none."""
    if not isinstance(unit, Function):
        return {}
    places = [each.arg for each in (*unit.args.posonlyargs, *unit.args.args)]
    places = places[1:] if places[:1] in (["self"], ["cls"]) else places
    others = [*unit.args.kwonlyargs, *filter(None, (unit.args.vararg, unit.args.kwarg))]
    return {**{each.arg: -1 for each in others}, **{name: at for at, name in enumerate(places)}, "self": -1}


def _default(unit: ast.For | Function, name: str) -> bool:
    """Whether a parameter that is not given has a default that is a number."""
    arguments = unit.args if isinstance(unit, Function) else None
    if arguments is None:
        return False
    places = [*arguments.posonlyargs, *arguments.args]
    pairs = zip([each.arg for each in places[::-1]], arguments.defaults[::-1], strict=False)
    return isinstance(dict(pairs).get(name), ast.Constant)
