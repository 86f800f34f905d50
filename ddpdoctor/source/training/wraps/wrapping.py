"""How the file of the user's factory wraps models: what is read off its syntax tree, without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.source.text.syntax import NO_PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WRAPPERS = {"DistributedDataParallel": "DDP", "DataParallel": "DataParallel"}
OPTIONS = ("find_unused_parameters", "static_graph", "broadcast_buffers", "forward_sync_buffers")
NAMESPACES = ("nn", "nn.parallel", "torch.nn", "torch.nn.parallel", "parallel")
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Read:
    """An attribute read from a wrapped model: ``name.attribute`` at ``line``."""

    line: int
    name: str
    attribute: str
    wrapper: str


@dataclass(frozen=True, slots=True)
class Source:
    """What a file does with wrapped models.

    ``options`` are those that it passes to DDP; one that is not a literal counts as switched on. ``twice`` are the
    lines where a wrapped model is called a second time before any backward in the same block.
    """

    file: str
    reads: tuple[Read, ...] = ()
    options: tuple[tuple[str, bool], ...] = ()
    data_parallel: int | None = None
    twice: tuple[int, ...] = ()


def read_source(file: str | None) -> Source:
    """Read a Python file; one that cannot be read says nothing."""
    if file is None:
        return Source("")
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, *NO_PYTHON):
        return Source(file)
    return read_tree(file, tree)


def read_tree(file: str, tree: ast.Module) -> Source:
    """Read a syntax tree."""
    names = _wrapper_names(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    options: dict[str, bool] = {}
    for call in calls:
        if _wrapper(call, names) == "DDP":
            options |= {word.arg: _flag(word.value) for word in call.keywords if word.arg in OPTIONS}
    parallel = [call.lineno for call in calls if _wrapper(call, names) == "DataParallel"]
    reads: list[Read] = []
    twice: list[int] = []
    for block in _blocks(tree):
        for index, statement in enumerate(block):
            if (bound := _bound(statement, names)) is not None:
                after = _until_bound_again(block[index + 1 :], bound[0])
                reads += _reads(after, *bound)
                twice += _called_twice(after, bound[0])
    return Source(file, tuple(reads), tuple(options.items()), min(parallel, default=None), tuple(sorted(set(twice))))


def _wrapper_names(tree: ast.Module) -> dict[str, str]:
    """Map the names under which the file imports the wrappers to what they are."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            names |= {item.asname or item.name: WRAPPERS[item.name] for item in node.names if item.name in WRAPPERS}
    return names


def _wrapper(node: ast.expr | None, names: dict[str, str]) -> str | None:
    """Return which wrapper a call makes; ``nn.DataParallel`` and the like count by their last name."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name):
        return names.get(node.func.id)
    if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in NAMESPACES:
        return WRAPPERS.get(node.func.attr)
    return None


def _flag(value: ast.expr) -> bool:
    return bool(value.value) if isinstance(value, ast.Constant) else True


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield block


def _bound(statement: ast.stmt, names: dict[str, str]) -> tuple[str, str] | None:
    """Return the name that a statement binds to a wrapped model, and the wrapper."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, wrapper = statement.targets[0], _wrapper(statement.value, names)
    return (target.id, wrapper) if isinstance(target, ast.Name) and wrapper is not None else None


def _until_bound_again(block: list[ast.stmt], name: str) -> list[ast.stmt]:
    for index, statement in enumerate(block):
        for node in _inside([statement]):
            if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
                return block[:index]
    return block


def _inside(block: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Walk a block in source order, but not into functions and classes that it defines."""
    for node in block:
        yield node
        if not isinstance(node, SCOPES):
            yield from _inside(ast.iter_child_nodes(node))


def _reads(block: list[ast.stmt], name: str, wrapper: str) -> Iterator[Read]:
    """Find what is read from the name; nothing where the file takes care (``hasattr``, ``try``, own attributes)."""
    found = [
        node
        for node in _inside(block)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
    ]
    own = {node.attr for node in found if not isinstance(node.ctx, ast.Load)}
    guarded = {
        id(node)
        for outer in _inside(block)
        if isinstance(outer, ast.Try) or (isinstance(outer, (ast.If, ast.IfExp)) and _asks(outer.test))
        for node in _inside([outer])
    }
    for node in found:
        if isinstance(node.ctx, ast.Load) and node.attr not in own and id(node) not in guarded:
            yield Read(node.lineno, name, node.attr, wrapper)


def _asks(test: ast.expr) -> bool:
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    return bool(names & {"hasattr", "isinstance", "getattr"})


def _called_twice(block: list[ast.stmt], name: str) -> Iterator[int]:
    """Yield the line of each second call of the name with no backward since the first, within one block."""
    for inner in [block, *(inner for statement in block for inner in _blocks(statement))]:
        calls = 0
        for statement in inner:
            if hasattr(statement, "body"):
                calls = 0
                continue
            for node in _inside([statement]):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                    calls += 1
                    if calls > 1:
                        yield node.lineno
            if any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in _inside([statement])):
                calls = 0
