"""The graphs of earlier steps are kept: memory grows with each step.

## What happens

A loss, an output or a hidden state that was not detached holds its graph: the operations that it was computed by, and
what they hold. `total += loss` makes one graph of all steps; `outputs.append(output)` keeps one a step;
`output, hidden = model(x, hidden)` with `retain_graph=True` lets each backward go through all steps so far, so that
each step takes longer than the one before. Hours later the training ends by its memory, at a line that is not at fault.

## How to be sure

Watch the memory of a rank over a few hundred steps. ddpdoctor puts a note into the graph of one loss of each of 12
steps, with torch's own `metadata` of a node, and looks after the next step which of these graphs live on. It finds
those of which 10 or more do, and which a variable of a function that is running, or an object in one, holds all
together. A graph that lives for a few steps, as in truncated backpropagation through time, is none.

## How to mend it

Keep what carries no graph: `total += loss.detach()`, `outputs.append(output.detach())`, `hidden = hidden.detach()`
before the next forward. `loss.item()` has no graph either, and waits for the device each time.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: PyTorch documentation, "Frequently Asked Questions", "My model reports cuda
runtime error(2): out of memory"; `torch.autograd.graph.Node.metadata`.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    GraphsKept,
    Keeper,
    Place,
    Severity,
    Training,
    tree_of,
    watch,
)

AILMENT = Ailment("DDP918", Severity.WARNING)
ADDS = {"append", "appendleft", "extend", "add", "update", "setdefault"}
SHOWN = 3  # variables


@watch(GraphsKept)
def while_training(event: GraphsKept, training: Training) -> Iterator[Finding]:
    """Tell of the first rank where graphs are kept, with the line that keeps them."""
    if not event.keepers or any(each is not event for each in training.of(GraphsKept)):
        return
    found = [(each, _statement(each)) for each in event.keepers]
    keeper, statement = next(((each, at) for each, at in found if at is not None), found[0])
    line = statement.lineno if statement is not None else keeper.line
    yield Finding(
        f"{keeper.name} keeps the graphs of earlier steps: memory grows with each step",
        (
            Evidence(
                f"the graphs of {event.alive} of {event.marked} steps are alive after step {event.steps}",
                "none but the last",
                f"rank {event.rank}",
            ),
            *(
                Evidence(_held(each), "", f"{each.function} at {each.file}:{each.line}")
                for each in sorted(event.keepers, key=lambda each: each is not keeper)[:SHOWN]
            ),
        ),
        Fix("keep what carries no graph: detach it first", diff=_diff(keeper, statement)),
        Place(file=keeper.file, line=line, rank=event.rank),
    )


def _held(keeper: Keeper) -> str:
    if keeper.kind in {"Tensor", "Parameter"}:
        return f"{keeper.name} is a tensor whose graph goes through these steps"
    return f"{keeper.name}, a {keeper.kind}, holds {keeper.tensors} tensors with their graphs"


def _statement(keeper: Keeper) -> ast.stmt | None:
    """Return the statement that makes a variable of itself and of something new, or adds to it."""
    tree, last = tree_of(keeper.file), keeper.name.rpartition(".")[2]
    for node in tree.nodes:
        match node:
            case ast.AugAssign(target=target) if _named(target) == last:
                return node
            case ast.Assign(targets=targets, value=value) if last in map(_named, _flat(targets)):
                if any(_named(each) == last for each in ast.walk(value)):
                    return node
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr, value=of))) if attr in ADDS:
                if _named(of) == last or (isinstance(of, ast.Subscript) and _named(of.value) == last):
                    return node
            case ast.Assign(targets=[ast.Subscript(value=of)]) if _named(of) == last:
                return node
    return None


def _flat(targets: list[ast.expr]) -> Iterator[ast.expr]:
    for each in targets:
        yield from _flat(each.elts) if isinstance(each, (ast.Tuple, ast.List)) else (each,)


def _named(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _diff(keeper: Keeper, statement: ast.stmt | None) -> str:
    """Return the line with what it keeps detached, where that is one name."""
    if statement is None or statement.lineno != statement.end_lineno:
        return ""
    text = linecache.getline(keeper.file, statement.lineno).rstrip()
    match statement:
        case ast.AugAssign(value=ast.Name(id=name)):
            added = f"{text[: text.rindex(name)]}{name}.detach(){text[text.rindex(name) + len(name) :]}"
            return f"-{text}\n+{added}"
        case ast.Expr(value=ast.Call(args=[ast.Name(id=name)])):
            return f"-{text}\n+{text.replace(f'({name})', f'({name}.detach())')}"
        case ast.Assign(targets=[ast.Tuple()]) if keeper.kind == "Tensor":
            indent = text[: len(text) - len(text.lstrip())]
            return f" {text}\n+{indent}{keeper.name} = {keeper.name}.detach()"
    return ""
