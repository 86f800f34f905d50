"""Samplers, loaders and loops over epochs, as a source has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import ACCELERATOR, by_parameter, dotted, given, is_open, keyword

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Edit, Script

SAMPLER = "torch.utils.data.DistributedSampler"
LOADER = "torch.utils.data.DataLoader"
STARTED_BY_LAUNCHERS = frozenset({"accelerate", "deepspeed", "horovod"})
"""Frameworks whose scripts run in each rank from their first line."""
OF_THE_MODEL = frozenset({"deepspeed", "fairscale"})
"""Frameworks that take the model, within torch's own group: loaders, metrics and files stay the script's."""
PASS_ON = {"enumerate", "tqdm.tqdm", "tqdm.auto.tqdm", "iter", "len", "zip", "tqdm.notebook.tqdm", "tqdm.trange"}


def is_own(script: Script, project: Around | None = None, *, known: AbstractSet[str] = frozenset()) -> bool:
    """Whether loaders, metrics and files are the script's own: no framework takes them over, and no unknown code can.

    ``known`` are frameworks that the caller knows what to make of; without a project the file alone is asked.
    """
    others = OF_THE_MODEL | known
    return not script.frameworks - others and (project is None or not project.unknown() - others)


@dataclass(frozen=True, slots=True)
class Sampled:
    """A DistributedSampler that one variable holds, and the loaders that are given it, by their variables."""

    call: ast.Call
    name: str
    loaders: dict[str, ast.Call]


def shuffling_samplers(script: Script) -> Iterator[Sampled]:
    """Yield the samplers that shuffle, and that leave their function only as part of a loader."""
    for call in script.calls(SAMPLER):
        if not is_shuffled(script, call):
            continue
        name = target(script, call)
        if name is None and (loader := given_to(script, call)) and (held := target(script, loader)) and "." not in held:
            yield Sampled(call, f"{held}.sampler", {held: loader})
        elif name is not None and "." not in name:
            loaders = {
                held: loader
                for loader in script.calls(LOADER)
                if script.function(loader) is script.function(call)
                and dotted(keyword(loader, "sampler") or call) == name
                and (held := target(script, loader)) is not None
            }
            yield Sampled(call, name, loaders)


def is_shuffled(script: Script, sampler: ast.Call) -> bool:
    """Whether a DistributedSampler is certain to shuffle."""
    shuffle = given(sampler, 3, "shuffle")
    held = script.constant(shuffle) if shuffle is not None else None
    is_on = shuffle is None or (held.value is True if held is not None else script.is_true(shuffle, sampler))
    return is_on and not is_open(sampler)


def is_reseeded(script: Script, sampler: ast.Call) -> bool:
    """Whether a DistributedSampler is made anew, or can be, each time with another seed."""
    seed = given(sampler, 4, "seed")
    if seed is None or isinstance(seed, ast.Constant):
        return False
    above = script.tree.above(sampler)
    return "epoch" in ast.unparse(seed).lower() or any(isinstance(each, (ast.For, ast.While)) for each in above)


def prepared(script: Script, *names: str) -> Iterator[ast.Call]:
    """Yield the calls of these methods of an Accelerator."""
    for call in script.nodes(ast.Call) if "accelerate" in script.imported else ():
        match call.func:
            case ast.Attribute(attr=name, value=owner) if name in names and script.made_by(owner, ACCELERATOR):
                yield call


def given_to(script: Script, sampler: ast.Call) -> ast.Call | None:
    """Return the loader in whose call a sampler is made, on all ways or on one of two."""
    node: ast.AST = sampler
    for parent in script.tree.above(sampler):
        if isinstance(parent, ast.IfExp) and node is not parent.test:
            node = parent
        elif not isinstance(parent, ast.keyword):
            is_loader = isinstance(parent, ast.Call) and script.resolve(parent.func) == LOADER
            return parent if isinstance(parent, ast.Call) and is_loader and keyword(parent, "sampler") is node else None
    return None


def target(script: Script, call: ast.Call) -> str | None:
    """Return the one variable that a call's result, or one of the branches that it is in, is assigned to."""
    node: ast.AST = call
    for parent in script.tree.above(call):
        if isinstance(parent, ast.IfExp) and node is not parent.test:
            node = parent
            continue
        if isinstance(parent, ast.Assign) and parent.value is node and len(parent.targets) == 1:
            return dotted(parent.targets[0])
        return None
    return None


def uses(script: Script, name: str, near: ast.AST) -> Iterator[ast.Name]:
    """Yield where a local variable is read."""
    function = script.function(near)
    for node in script.nodes(ast.Name):
        match node:
            case ast.Name(id=read, ctx=ast.Load()) if read == name and function in {None, script.function(node)}:
                yield node


def iterated(script: Script, name: str, loop: ast.AST) -> ast.For | None:
    """Return the loop, within another or in a function that is called there, that goes through what a name holds."""
    return next(iterations(script, name, loop), None)


def iterations(script: Script, name: str, loop: ast.AST, depth: int = 3) -> Iterator[ast.For]:
    """Yield the loops, within another or in functions that are called there, that go through what a name holds."""
    for node in script.inside(loop):
        if isinstance(node, ast.For) and node is not loop and _through(script, node.iter) == name:
            yield node
        if isinstance(node, ast.Call) and depth:
            yield from _in_function(script, node, name, depth)


def _in_function(script: Script, call: ast.Call, name: str, depth: int) -> Iterator[ast.For]:
    function = script.called(call)
    if function is None or isinstance(function, ast.Lambda):
        return
    for parameter, value in by_parameter(function, call).items():
        if _through(script, value) == name:
            yield from iterations(script, parameter, function, depth - 1)


def gone_through(script: Script, node: ast.expr) -> ast.expr:
    """Return what ``x``, ``enumerate(x)``, ``tqdm(x)`` and ``zip(x, y)`` go through."""
    while isinstance(node, ast.Call) and node.args and script.resolve(node.func) in PASS_ON:
        node = node.args[0]
    return node


def _through(script: Script, node: ast.expr) -> str | None:
    return dotted(gone_through(script, node))


def sharded_loaders(script: Script) -> Iterator[tuple[str, ast.Call]]:
    """Yield the variables of loaders whose sampler is a DistributedSampler where there are several ranks, with it."""
    for loader in script.calls(LOADER):
        sampler, name = keyword(loader, "sampler"), target(script, loader)
        held = script.held(sampler) if isinstance(sampler, (ast.Name, ast.Attribute)) else sampler
        made = script.of_several(held) if held is not None else None
        if not isinstance(made, ast.Call) or name is None or script.resolve(made.func) != SAMPLER:
            continue
        if not gives_all(made):
            yield name, made


def gives_all(sampler: ast.Call) -> bool:
    """Whether a DistributedSampler is told that there is one rank: it gives all samples."""
    replicas = given(sampler, 1, "num_replicas")
    return isinstance(replicas, ast.Constant) and replicas.value == 1


def engine_of(script: Script, call: ast.Call) -> str:
    """Return what holds the engine of a call of deepspeed.initialize, the first of four; empty where nothing does."""
    match script.tree.parents.get(call):
        case ast.Assign(targets=[ast.Tuple(elts=[first, *_])]):
            return dotted(first) or ""
    return ""


def prepared_loaders(script: Script) -> Iterator[tuple[str, ast.Call]]:
    """Yield the variables of loaders that Accelerate has shared out, with the call of prepare."""
    for node in script.nodes(ast.Assign):
        match node:
            case ast.Assign(
                targets=[ast.Tuple(elts=names)], value=ast.Call(func=ast.Attribute(attr="prepare"), args=handed) as call
            ) if len(names) == len(handed):
                for name, each in zip(names, handed, strict=True):
                    made = script.value(each) if not isinstance(each, ast.Name) else _first(script, each)
                    is_loader = isinstance(made, ast.Call) and script.resolve(made.func) == LOADER
                    if isinstance(name, ast.Name) and is_loader:
                        yield name.id, call


def _first(script: Script, name: ast.Name) -> ast.expr | None:
    """Return what a variable held before prepare: the first thing that it is given."""
    bound = sorted(script.tree.lookup(name.id, name), key=lambda each: each.line)
    return bound[0].value if bound else None


def taken_out(script: Script, call: ast.Call) -> tuple[Edit, ...]:
    """Return the edit that takes a call out which is a statement of its own; none where something is done with it."""
    statement = script.tree.statement(call)
    if not isinstance(statement, ast.Expr) or statement.value is not call:
        return ()
    return (script.removed(statement, script.tree.block(statement)),)
