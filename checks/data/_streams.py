"""What the generators of iterable data sets hold on all ranks, and how their source draws."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from ddpdoctor.check import Site, StreamSeen, Training, last_name, tree_of, variables_in

from .._evaluation.evaluations import shares_gradients
from ._lines import SEEDS

SHUFFLES = {"shuffle", "permutation", "randperm", "sample"}
COUNTS = frozenset({"range", "count"})
RANK = re.compile("rank|world|replica|shard", re.IGNORECASE)
NOISE = frozenset(
    "rand randn rand_like randn_like normal normal_ uniform uniform_ random standard_normal gauss normalvariate "
    "bernoulli bernoulli_ exponential_ beta triangular".split()
)
"""What draws numbers that no order is made of."""


def passes(event: StreamSeen, training: Training) -> list[tuple[StreamSeen, ...]]:
    """Return the batches of each pass that the event's process has made over this generator, oldest first."""
    if event.site is None:
        return []
    told = [each for each in training.of(StreamSeen, pid=event.pid) if each.site and each.site.file == event.site.file
            and each.site.function == event.site.function]  # fmt: skip
    keys = dict.fromkeys((each.loader, each.number) for each in told)
    return [tuple(each for each in told if (each.loader, each.number) == key) for key in keys]


def first_batches(event: StreamSeen, training: Training) -> dict[int, tuple[StreamSeen, ...]]:
    """Return the batches of the first pass of each rank up to this one; nothing before all have told them."""
    mine = passes(event, training)
    if not mine or event not in mine[0]:
        return {}
    last = training.complete(StreamSeen, loader=event.loader, number=event.number, batch=event.batch)
    if not last or not all(shares_gradients(each.pid, training) for each in last.values()):
        return {}
    found = {
        rank: tuple(
            each
            for each in training.of(StreamSeen, pid=told.pid, loader=event.loader, number=event.number)
            if each.batch <= event.batch
        )
        for rank, told in last.items()
    }
    return found if all(len(each) == event.batch for each in found.values()) else {}


def read_alike(ranks: Mapping[int, Sequence[StreamSeen]]) -> tuple[str, int] | None:
    """Return a variable, and the number of a piece of each batch, that are the same on all ranks, and never twice.

    A variable alone could be a part of the data that all ranks read, and share out. None where the batches are the same
    as a whole.
    """
    rows = [*zip(*ranks.values(), strict=True)]
    told = [each for row in rows for each in row]
    pieces = min((len(each.pieces) for each in told), default=0)
    same = [at for at in range(pieces) if _are_samples([{each.pieces[at] for each in row} for row in rows])]
    names = sorted(set.intersection(*({name for name, _ in each.held} for each in told))) if told else []
    read = [name for name in names if _are_samples([{dict(each.held)[name] for each in row} for row in rows])]
    return (read[0], same[0]) if read and same and len(same) < pieces else None


def _are_samples(rows: list[set[str]]) -> bool:
    """Whether digests are the same on all ranks with each batch, and others with each."""
    digests = [each for row in rows for each in row]
    return all(len(row) == 1 for row in rows) and "" not in digests and len(set(digests)) == len(digests)


def drawing_alike(rows: Sequence[Sequence[StreamSeen]]) -> str:
    """Return a generator that is in one state in all of each row, or was seeded with one number; empty without one."""
    found = [[{name: (state, seed) for name, state, seed in each.drawers} for each in row] for row in rows]
    names = [{*each} for row in found for each in row]
    for name in sorted(set.intersection(*names)) if names else ():
        states = [{each[name][0] for each in row} for row in found]
        seeds = {each[name][1] for row in found for each in row}
        moves = len({state for row in states for state in row}) >= len(rows)
        if moves and (all(len(each) == 1 for each in states) or (len(seeds) == 1 and seeds != {""})):
            return name
    return ""


def alike(told: Sequence[Sequence[tuple[str, str]]]) -> str:
    """Return a name that has the same digest in all of these; empty without one."""
    first, *others = map(dict, told)
    return next((name for name, each in first.items() if all(other.get(name) == each for other in others)), "")


def function_of(site: Site) -> ast.AST:
    """Return the function that gives the samples, or the class that it is a method of."""
    module = tree_of(site.file).module
    holding = [each for each in ast.walk(module) if isinstance(each, (ast.ClassDef, ast.FunctionDef))
               and each.lineno <= site.line <= (each.end_lineno or 0)]  # fmt: skip
    return min(holding, key=lambda each: each.lineno, default=module)


def shuffled_at(site: Site, name: str) -> Site | None:
    """Return the line that puts a variable in an order drawn at random."""
    for call in _calls(function_of(site)):
        if last_name(call.func) in SHUFFLES and (_says(call, name) or _assigned(site, call) == name):
            return site._replace(line=call.lineno)
    return None


def is_shared_out(site: Site, name: str) -> bool:
    """Whether each rank takes its part of a variable, ``order[rank::world]``, or leaves out what is other ranks'."""
    for each in ast.walk(function_of(site)):
        match each:
            case ast.Subscript(value=value, slice=ast.Slice() as part) if ast.unparse(value) == name:
                taken = ast.unparse(part)
            case ast.If(test=ast.Compare(left=ast.BinOp(op=ast.Mod())) as test):
                taken = ast.unparse(test)
            case _:
                continue
        if RANK.search(taken):
            return True
    return False


def seeded_at(site: Site, name: str) -> Site | None:
    """Return the line that makes, or seeds, the generator of this name."""
    return next((site._replace(line=call.lineno) for call in _seeds(site, name)), None)


def draws_noise_alone(site: Site, name: str) -> bool:
    """Whether all that is drawn from a generator are numbers that no order is made of."""
    drawn = [
        last_name(call.func)
        for call in _calls(function_of(site))
        if (isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == name)
        or any(ast.unparse(each.value) == name for each in call.keywords if each.arg == "generator")
    ]
    draws = [each for each in drawn if each not in {"manual_seed", "seed", "get_state", "getstate", "initial_seed"}]
    return bool(draws) and NOISE.issuperset(draws)


def changes_samples(site: Site, name: str) -> bool:
    """Whether what is drawn from a generator changes samples that are read, and is not what they are made of.

    A loop around the draws goes over something that is read, or takes something by its number; it does not seed the
    generator by that, as what gives a sample numbers of its own does.
    """
    within = [*ast.walk(function_of(site))]
    around = [each for each in within if isinstance(each, ast.comprehension) or _draws_in(each, name)]
    numbers = {each.id for loop in around for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    seeds = _seeds(site, name)
    if any(variables_in(call) & numbers for call in seeds):
        return False
    if any(not COUNTS.issuperset(_called(loop.iter)) for loop in around):
        return True
    others = (each for each in within if isinstance(each, (ast.Subscript, ast.Call)) and each not in seeds)
    return any(variables_in(part) & numbers for other in others for part in _given(other))


def _draws_in(node: ast.AST, name: str) -> TypeGuard[ast.For]:
    return isinstance(node, ast.For) and any(_says(call, name) for call in _calls(node))


def _seeds(site: Site, name: str) -> list[ast.Call]:
    """Return the calls that make, or seed, the generator of this name."""
    return [
        call
        for call in _calls(function_of(site))
        if last_name(call.func) in SEEDS and (_says(call.func, name) or _assigned(site, call) == name)
    ]


def _called(node: ast.AST) -> set[str]:
    """Return the function that a loop goes over; the empty name for all else."""
    return {last_name(node.func)} if isinstance(node, ast.Call) else {""}


def _given(node: ast.Subscript | ast.Call) -> list[ast.expr]:
    return [node.slice] if isinstance(node, ast.Subscript) else [*node.args, *(each.value for each in node.keywords)]


def _calls(node: ast.AST) -> list[ast.Call]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Call)]


def _says(node: ast.AST, name: str) -> bool:
    return any(isinstance(each, (ast.Name, ast.Attribute)) and ast.unparse(each) == name for each in ast.walk(node))


def _assigned(site: Site, call: ast.Call) -> str:
    """Return what a call's result is assigned to."""
    for each in ast.walk(function_of(site)):
        if isinstance(each, ast.Assign) and any(inner is call for inner in ast.walk(each.value)):
            return ast.unparse(each.targets[0])
    return ""
