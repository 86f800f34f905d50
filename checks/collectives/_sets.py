"""Loops through a set, or what was made in the order of one: texts have another hash in each process."""

from __future__ import annotations

import ast

from ddpdoctor.check import Site, Tree, statement_at, tree_of

SETS = frozenset({"set", "frozenset"})
METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
KEEPS_ORDER = frozenset("list tuple dict enumerate iter reversed fromkeys OrderedDict zip tqdm".split())
SECOND = frozenset({"map", "filter"})
VIEWS = frozenset({"items", "keys", "values", "copy"})
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEEPEST = 7


def loop_through_a_set(site: Site | None) -> ast.For | None:
    """Return the innermost loop around a line, if it goes through a set in the order that this happens to have."""
    if site is None:
        return None
    tree = tree_of(site.file)
    statement = statement_at(tree, site.line)
    loop = _loop_around(tree, statement) if statement is not None else None
    return loop if isinstance(loop, ast.For) and is_a_set(tree, loop.iter) else None


def is_a_set(tree: Tree, node: ast.expr, depth: int = DEEPEST) -> bool:
    """Whether an expression is a set, or has the order of one, as far as its own file tells for certain.

    Numbers have the same hash in each process: a set of them is none here.
    """
    found = isinstance(node, (ast.Set, ast.SetComp)) and not _is_of_numbers(node)
    match node if depth else None:
        case ast.DictComp(generators=[first, *_]) | ast.ListComp(generators=[first, *_]):
            found = is_a_set(tree, first.iter, depth - 1)
        case ast.GeneratorExp(generators=[first, *_]):
            found = is_a_set(tree, first.iter, depth - 1)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, OPERATORS):
            both = isinstance(op, ast.BitAnd) and is_a_set(tree, right, depth - 1)
            found = both or is_a_set(tree, left, depth - 1)
        case ast.Call() as call:
            found = _is_called(tree, call, call.args, depth - 1)
        case (ast.Name() | ast.Attribute(value=ast.Name(id="self"))) as name:
            values = _held(tree, name)
            found = all_are_sets(tree, values, depth - 1) or _is_filled(tree, name, values, depth - 1)
    return found


def _is_of_numbers(node: ast.expr) -> bool:
    """Whether an expression holds numbers alone, as it is written."""
    match node:
        case ast.Set(elts=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
            numbers = [
                each for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, (int, float))
            ]
            return bool(parts) and len(numbers) == len(parts)
        case (
            ast.SetComp(elt=ast.Name(id=held), generators=[first])
            | ast.GeneratorExp(elt=ast.Name(id=held), generators=[first])
            | ast.ListComp(elt=ast.Name(id=held), generators=[first])
        ):
            return isinstance(first.target, ast.Name) and first.target.id == held and _is_of_numbers(first.iter)
        case ast.Call(func=ast.Name(id="range")):
            return True
    return False


def all_are_sets(tree: Tree, values: list[ast.expr], depth: int) -> bool:
    """Whether there are values, and all of them are sets."""
    return bool(values) and all(is_a_set(tree, each, depth) for each in values)


def _is_called(tree: Tree, call: ast.Call, args: list[ast.expr], depth: int) -> bool:
    """Whether what a call returns is a set, or goes on in the order of one."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    if name in SETS and owner is None:
        return not any(map(_is_of_numbers, args))
    if owner is not None and ((name in VIEWS and not args) or name in METHODS):
        return is_a_set(tree, owner, depth)
    ordered = args[:1] if name in KEEPS_ORDER else args[1:2] if name in SECOND else []
    return any(is_a_set(tree, each, depth) for each in ordered) or _returns_a_set(tree, name, depth)


def _held(tree: Tree, node: ast.Name | ast.Attribute) -> list[ast.expr]:
    """Return what a name, a parameter or an attribute of ``self`` is given, where it is known."""
    if isinstance(node, ast.Attribute):
        owner = next((each for each in tree.above(node) if isinstance(each, ast.ClassDef)), None)
        return _values(tree, owner, ast.unparse(node)) if owner is not None else []
    around = _function(tree, node)
    values = _values(tree, around or tree.module, node.id)
    if around is not None and (parameter := _parameter(around, node.id)) is not None:
        return [*values, *_given(tree, around, parameter, node.id)]
    return values or _values(tree, tree.module, node.id)


def _values(tree: Tree, around: ast.AST, text: str) -> list[ast.expr]:
    """Return what a name, or an attribute of ``self``, is given in a function, a class or the module itself."""
    given = [each for each in ast.walk(around) if isinstance(each, (ast.Assign, ast.AnnAssign))]
    if around is tree.module:
        given = [each for each in given if _function(tree, each) is None]
    return [
        each.value
        for each in given
        if each.value is not None
        and any(ast.unparse(to) == text for to in (each.targets if isinstance(each, ast.Assign) else [each.target]))
    ]


def _is_filled(tree: Tree, node: ast.expr, values: list[ast.expr], depth: int) -> bool:
    """Whether what begins empty is filled in loops through sets alone: an item or an element in each round."""
    empty = {"{}", "[]", "dict()", "list()", "OrderedDict()", "collections.OrderedDict()"}
    if len(values) != 1 or ast.unparse(values[0]) not in empty:
        return False
    text = ast.unparse(node)
    fills = [
        *(each for each in tree.of(ast.Subscript) if isinstance(each.ctx, ast.Store) and _is(each.value, text)),
        *(each for each in tree.of(ast.Call) if _is_append(each, text)),
    ]
    scopes = (*FUNCTIONS, ast.ClassDef) if "." not in text else (ast.ClassDef,)
    home = next((each for each in tree.above(node) if isinstance(each, scopes)), tree.module)
    loops = [_loop_around(tree, each) for each in fills if home is tree.module or home in tree.above(each)]
    return bool(loops) and all(isinstance(each, ast.For) and is_a_set(tree, each.iter, depth) for each in loops)


def _is(node: ast.expr, text: str) -> bool:
    return ast.unparse(node) == text


def _is_append(call: ast.Call, text: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "append" and _is(call.func.value, text)


def _parameter(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> int | None:
    """Return which parameter of a function a name is, from 0, ``self`` left out; None where it is none."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    return names.index(name) if name in names else None


def _given(tree: Tree, function: ast.FunctionDef | ast.AsyncFunctionDef, at: int, name: str) -> list[ast.expr]:
    """Return what the calls of a function in its file give a parameter; nothing where one of them gives none."""
    names = [*(each.name for each in tree.of(ast.FunctionDef)), *(each.name for each in tree.of(ast.AsyncFunctionDef))]
    calls = [each for each in tree.of(ast.Call) if ast.unparse(each.func).rpartition(".")[2] == function.name]
    if names.count(function.name) != 1:
        return []
    found = [
        each.args[at]
        if at < len(each.args) and not any(isinstance(arg, ast.Starred) for arg in each.args)
        else next((word.value for word in each.keywords if word.arg == name), None)
        for each in calls
    ]
    return [each for each in found if each is not None] if None not in found else []


def _function(tree: Tree, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    return next((each for each in tree.above(node) if isinstance(each, FUNCTIONS)), None)


def _loop_around(tree: Tree, node: ast.AST) -> ast.AST | None:
    """Return the innermost loop around a node, or that is it, within its function."""
    for each in (node, *tree.above(node)):
        if isinstance(each, LOOPS):
            return each
        if isinstance(each, FUNCTIONS):
            return None
    return None


def _returns_a_set(tree: Tree, name: str, depth: int) -> bool:
    """Whether the one function of this name in a file returns sets alone."""
    functions = [each for each in tree.of(ast.FunctionDef) if each.name == name]
    if len(functions) != 1:
        return False
    values = [each.value for each in ast.walk(functions[0]) if isinstance(each, ast.Return) and each.value is not None]
    return all_are_sets(tree, values, depth)
