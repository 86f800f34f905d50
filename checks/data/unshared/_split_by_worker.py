"""A stream that its workers split among them, in the source: the line that does so, as it would split by rank too."""

from __future__ import annotations

import ast
import linecache
import re

from ddpdoctor.check import Fix, last_name, tree_of

WORKER = re.compile(r"(\w+\.)?(id|wid|worker|worker_id|worker_index)")
WORKERS = re.compile(r"(\w+\.)?(num_workers|n_workers|workers|nw)")


def by_rank_and_worker(file: str, kind: str, otherwise: Fix) -> Fix:
    """Return the line of a class that splits by worker, and then by rank and worker; the other fix where there is none.

    A second split by both, on top of that of the workers, would leave samples out.
    """
    classes = [each for each in tree_of(file).of(ast.ClassDef) if each.name == kind] if file else []
    for node in (node for each in classes for node in ast.walk(each)):
        parts = _parts(node)
        if parts is None or parts[0].lineno != parts[1].end_lineno or _speaks_of_ranks(node):
            continue
        if (guard := _guard(node, file)) is not None:
            return _before_the_guard(file, *guard)
        line = linecache.getline(file, parts[0].lineno).rstrip()
        own, number = (ast.unparse(each) for each in parts)
        edits = [
            (parts[0], f"dist.get_rank() * {number} + {own}"),
            (parts[1], f"dist.get_world_size() * {number}"),
            *(
                (whole, f"{ast.unparse(whole)}[dist.get_rank() :: dist.get_world_size()]")
                for whole in _alone(node, file)
            ),
        ]
        text = line.encode()
        for part, new in sorted(edits, key=lambda each: -each[0].col_offset):
            text = text[: part.col_offset] + new.encode() + text[part.end_col_offset :]
        return Fix("split by rank and worker, in the line that splits by worker", diff=f"-{line}\n+{text.decode()}")
    return otherwise


def _guard(node: ast.AST, file: str) -> tuple[ast.If, str] | None:
    """Return the ``if`` that alone leads to a line ``urls = urls[...]``, and the name; None where there is none.

    Without workers nobody comes to that line: the split by rank stands before the ``if`` then.
    """
    for each in tree_of(file).of(ast.If):
        for statement in each.body if not each.orelse else ():
            match statement:
                case ast.Assign(targets=[target], value=value) if node in {*ast.walk(value)}:
                    taken = node.value if isinstance(node, ast.Subscript) else getattr(node, "args", [None])[0]
                    name = ast.unparse(target)
                    return (each, name) if isinstance(taken, ast.expr) and ast.unparse(taken) == name else None
    return None


def _before_the_guard(file: str, guard: ast.If, name: str) -> Fix:
    line = linecache.getline(file, guard.lineno).rstrip()
    space = line[: len(line) - len(line.lstrip())]
    return Fix(
        f"split by rank before {line.strip().removesuffix(':')}, which holds in workers alone; they split what is left",
        diff=f"+{space}{name} = {name}[dist.get_rank() :: dist.get_world_size()]\n {line}",
    )


def _parts(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Return the number of the worker and that of all, where every so many entries are taken from the first on."""
    match node:
        case ast.Subscript(slice=ast.Slice(lower=ast.expr() as own, step=ast.expr() as number)):
            pass
        case ast.Call(args=[_, own, _, number]) if last_name(node.func) == "islice":
            pass
        case _:
            return None
    matches = WORKER.fullmatch(ast.unparse(own)) and WORKERS.fullmatch(ast.unparse(number))
    return (own, number) if matches else None


def _alone(node: ast.AST, file: str) -> list[ast.expr]:
    """Return what is taken whole where there is no worker, on the same line: ``shards if info is None else ...``."""
    return [
        each.body
        for each in tree_of(file).of(ast.IfExp)
        if each.orelse is node
        and each.body.lineno == each.body.end_lineno == node.lineno
        and isinstance(each.body, (ast.Name, ast.Attribute))
    ]


def _speaks_of_ranks(node: ast.AST) -> bool:
    """Whether what is taken from is a rank's part already."""
    return any("rank" in last_name(each) for each in ast.walk(node))
