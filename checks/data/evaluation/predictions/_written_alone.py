"""What becomes of a list, or a tensor, that each rank has: whether one rank alone writes its own, as the source says.

Whatever is not understood ends the search: a call that can gather, an attribute that keeps it, a test on what it holds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import last_name, resolve

if TYPE_CHECKING:
    from ddpdoctor.check import Tree

GATHERS = re.compile(r"gather|reduce|send|broadcast|scatter|merge|synchronize|all_to_all|isend|put\(", re.IGNORECASE)
WRITES = re.compile(r"(?:^|_)(?:save|savez|savetxt|write|writes|writer|writerow|writerows|dump|export|submit|to_csv"
                    r"|to_json|to_parquet|to_pickle|to_excel|tofile|write_text|save_to_disk)(?:_|$)")  # fmt: skip
SOME = re.compile(
    r"sample|example|visuali|\bvis_|debug|save_image|make_grid|imsave|fig|plot|(?<!/)tmp|cache|preview|demo|\[:\d",
    re.IGNORECASE,
)
"""What says that a few of them are written, to be looked at."""
HARMLESS = re.compile(r"^(?:torch|numpy|itertools|pandas|collections|math|builtins)\.(?!distributed)")
"""Functions, by their full names, that know nothing of other ranks."""
BUILTINS = frozenset("list tuple len sum sorted zip map enumerate dict set range int float str reversed".split())
SHOWS = frozenset("print info log debug".split())
GROWS = frozenset("append extend update".split())
METHODS = frozenset(
    "tolist numpy cpu item detach float int long flatten view reshape squeeze argmax items values keys astype join"
    " format strip mean std copy clone to".split()
)


@dataclass(frozen=True, slots=True)
class Written:
    """The call that writes, the code of its statement and of the ``with`` that opens the file, and who comes there."""

    call: ast.Call
    code: str
    guard: str


def written_alone(
    tree: Tree, start: ast.stmt, held: set[str], alone: Callable[[ast.stmt], str], depth: int = 2
) -> Written | None:
    """Return how one rank alone writes what variables hold behind a statement; None where they can go elsewhere too.

    ``alone`` says what lets only one rank come to a statement, and nothing where all come.
    """
    names, found = set(held), None
    scope = tree.scope(start)
    elsewhere = [each for each in tree.of(ast.Name) if each.id in names and tree.scope(each) is not scope]
    if any(tree.lookup(each.id, each) is tree.bindings.get(scope, {}).get(each.id) for each in elsewhere):
        return None  # a function within
    for statement in _behind(tree, start):
        if not _reads(statement, names):
            names -= _given_anew(statement)
            continue
        if guard := alone(statement):
            names |= _targets(statement)
            call = next((each for each in _calls(statement) if _writes(each, names)), None)
            if found is None and call is not None:
                found = Written(call, _code(tree, statement), guard)
        elif isinstance(statement, ast.Return):
            return _by_the_caller(tree, statement, alone, depth) if found is None else None
        elif not _keeps(tree, statement):
            return None
        else:
            names |= _targets(statement)
    return found if found is not None and not SOME.search(found.code) else None


def _by_the_caller(tree: Tree, statement: ast.Return, alone: Callable[[ast.stmt], str], depth: int) -> Written | None:
    """Follow what a function returns to the one call of it in the file."""
    function = tree.function(statement)
    if depth <= 0 or not isinstance(function, ast.FunctionDef) or not isinstance(statement.value, ast.Name):
        return None
    calls = [each for each in tree.of(ast.Call) if isinstance(each.func, ast.Name) and each.func.id == function.name]
    made = tree.statement(calls[0]) if len(calls) == 1 else None
    if not isinstance(made, ast.Assign) or made.value is not calls[0] or alone(made):
        return None
    targets = _targets(made)
    return written_alone(tree, made, targets, alone, depth - 1) if len(targets) == 1 else None


def _behind(tree: Tree, start: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements behind one, in order, in its function."""
    scope, end = tree.scope(start), start.end_lineno or start.lineno
    found = [each for each in tree.of(ast.Name) if tree.scope(each) is scope and each.lineno > end]
    told: set[ast.stmt] = set()
    for name in sorted(found, key=lambda each: (each.lineno, each.col_offset)):
        statement = tree.statement(name)
        if statement is not None and statement not in told and statement.lineno > end:
            told.add(statement)
            yield statement


def _own(statement: ast.stmt) -> list[ast.AST]:
    """Return the parts of a statement, without the statements within it."""
    return [each for each in ast.iter_child_nodes(statement) if not isinstance(each, (ast.stmt, ast.ExceptHandler))]


def _reads(statement: ast.stmt, names: set[str]) -> bool:
    return any(
        isinstance(each, ast.Name) and each.id in names and not isinstance(each.ctx, ast.Store)
        for part in _own(statement)
        for each in ast.walk(part)
    )


def _calls(statement: ast.stmt) -> list[ast.Call]:
    return [each for part in _own(statement) for each in ast.walk(part) if isinstance(each, ast.Call)]


def _writes(call: ast.Call, names: set[str]) -> bool:
    """Whether a call writes what a variable holds, or a table that was made of it."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    given = [*call.args, *(each.value for each in call.keywords), *([receiver] if receiver is not None else [])]
    read = any(isinstance(each, ast.Name) and each.id in names for part in given for each in ast.walk(part))
    return read and WRITES.search(last_name(call.func) or "") is not None


def _targets(statement: ast.stmt) -> set[str]:
    """Return the variables that a statement gives what it reads: by an assignment, in a loop, or to what it appends."""
    match statement:
        case ast.Assign(targets=targets):
            pass
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.For(target=target):
            targets = [target]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method))) if method in GROWS:
            return {name}
        case _:
            return set()
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _given_anew(statement: ast.stmt) -> set[str]:
    """Return the variables that a statement gives something else."""
    return _targets(statement) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else set()


def _keeps(tree: Tree, statement: ast.stmt) -> bool:
    """Whether a statement that all ranks come to leaves what it reads with each rank, in variables."""
    match statement:
        case ast.Assign(targets=targets) if all(isinstance(each, (ast.Name, ast.Tuple)) for each in targets):
            pass
        case ast.AnnAssign(target=ast.Name()) | ast.AugAssign(target=ast.Name()) | ast.For() | ast.If() | ast.Assert():
            pass
        case ast.Delete():
            return True
        case ast.Expr(value=ast.Call(func=function)) if last_name(function) in SHOWS | GROWS:
            inner = _calls(statement)[1:]
            return all(_is_harmless(tree, each) for each in inner)
        case _:
            return False
    return all(_is_harmless(tree, each) for each in _calls(statement))


def _is_harmless(tree: Tree, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS | GROWS:
        return True
    if isinstance(call.func, ast.Name) and call.func.id in BUILTINS:
        return True
    path = resolve(tree, call.func) or ""
    return HARMLESS.match(path) is not None


def _code(tree: Tree, statement: ast.stmt) -> str:
    """Return the code of a statement, with that of the ``with open(...)`` around it."""
    opened = [item for each in tree.above(statement) if isinstance(each, ast.With) for item in each.items]
    return " ".join(map(ast.unparse, [*opened, statement]))


def kept_in(tree: Tree, loop: ast.For) -> set[str]:
    """Return the lists that a loop appends to in each turn; none where it breaks off, or exchanges something."""
    inside = [each for part in loop.body for each in ast.walk(part)]
    if any(isinstance(each, (ast.Break, ast.Continue, ast.Return)) for each in inside):
        return set()
    if any(isinstance(each, ast.Call) and GATHERS.search(ast.unparse(each.func)) for each in inside):
        return set()
    return {name for name in _appended(loop.body) if _is_made_empty(tree, loop, name)}


def _appended(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.With(body=within):
                yield from _appended(within)
            case ast.For(body=within):
                yield from _appended(within)
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend"), args=[_])
            ):
                yield name


def _is_made_empty(tree: Tree, loop: ast.For, name: str) -> bool:
    """Whether a variable is an empty list before a loop, in the loop's own function."""
    bound = tree.bindings.get(tree.scope(loop), {}).get(name, [])
    return any(isinstance(each.value, ast.List) and not each.value.elts and each.line < loop.lineno for each in bound)
