"""What of a source holds a rank: through assignments, conversions, argparse, the environment and helper functions."""

from __future__ import annotations

import ast
import enum
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.text.bindings import dotted
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.arguments import argument
from ddpdoctor.source.values.bound import (
    attribute,
    definition,
    given,
    is_of_options,
    returned,
    values,
    variable,
)
from ddpdoctor.source.values.handed import calls_abroad, handed
from ddpdoctor.source.values.keyed import keyed
from ddpdoctor.source.values.parsed import knows_option
from ddpdoctor.source.values.sites import SPAWN, call_sites

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Tree


class Fact(enum.Enum):
    """What a number is, in a training of several processes."""

    RANK = "the global rank"
    LOCAL_RANK = "the local rank"
    NODE_RANK = "the number of the node"
    WORLD_SIZE = "the world size"
    LOCAL_WORLD_SIZE = "the number of ranks or GPUs of the host"


VARIABLES = {
    "RANK": Fact.RANK,
    "SLURM_PROCID": Fact.RANK,
    "OMPI_COMM_WORLD_RANK": Fact.RANK,
    "PMI_RANK": Fact.RANK,
    "LOCAL_RANK": Fact.LOCAL_RANK,
    "SLURM_LOCALID": Fact.LOCAL_RANK,
    "OMPI_COMM_WORLD_LOCAL_RANK": Fact.LOCAL_RANK,
    "GROUP_RANK": Fact.NODE_RANK,
    "NODE_RANK": Fact.NODE_RANK,
    "SLURM_NODEID": Fact.NODE_RANK,
    "WORLD_SIZE": Fact.WORLD_SIZE,
    "SLURM_NTASKS": Fact.WORLD_SIZE,
    "OMPI_COMM_WORLD_SIZE": Fact.WORLD_SIZE,
    "LOCAL_WORLD_SIZE": Fact.LOCAL_WORLD_SIZE,
}
CALLS = {
    "torch.distributed.get_rank": Fact.RANK,
    "torch.distributed.get_world_size": Fact.WORLD_SIZE,
    "torch.distributed.get_node_local_rank": Fact.LOCAL_RANK,
    "torch.cuda.device_count": Fact.LOCAL_WORLD_SIZE,
    "deepspeed.comm.get_local_rank": Fact.LOCAL_RANK,
    "horovod.torch.rank": Fact.RANK,
    "horovod.torch.local_rank": Fact.LOCAL_RANK,
    "horovod.torch.size": Fact.WORLD_SIZE,
    "horovod.torch.local_size": Fact.LOCAL_WORLD_SIZE,
    "mpi4py.MPI.COMM_WORLD.Get_rank": Fact.RANK,
    "mpi4py.MPI.COMM_WORLD.Get_size": Fact.WORLD_SIZE,
    "ignite.distributed.get_rank": Fact.RANK,
    "ignite.distributed.get_local_rank": Fact.LOCAL_RANK,
    "ignite.distributed.get_world_size": Fact.WORLD_SIZE,
}
OF_FRAMEWORKS = {
    "global_rank": Fact.RANK,
    "process_index": Fact.RANK,
    "local_process_index": Fact.LOCAL_RANK,
}
"""Attributes in which Lightning, Fabric, Accelerate and transformers hold the rank."""
CONTEXTS = ("ray.train.get_context", "ray.train.context.get_context")
OF_A_CONTEXT = {
    "get_world_rank": Fact.RANK,
    "get_local_rank": Fact.LOCAL_RANK,
    "get_node_rank": Fact.NODE_RANK,
    "get_world_size": Fact.WORLD_SIZE,
    "get_local_world_size": Fact.LOCAL_WORLD_SIZE,
}
"""Methods of the context that Ray Train gives a worker."""
DEPTH = 10
NODES = re.compile(r"node|gpus?\b|gpus_|n_?proc|machine|host|\bnr\b|world_id|local_(?:world_)?size", re.IGNORECASE)
"""Words of a product that counts the ranks of the nodes before."""


def fact(tree: Tree, node: ast.expr, depth: int = DEPTH) -> Fact | None:
    """Return what a number is; None where that is not certain."""
    key = node, depth
    if key not in tree.facts:
        found = _fact(tree, node, depth) if depth else None
        tree.facts[key] = found.value if found is not None else None
    held = tree.facts[key]
    return Fact(held) if held is not None else None


def _fact(tree: Tree, node: ast.expr, depth: int) -> Fact | None:  # noqa: PLR0911 - one case an expression
    name = variable(tree, node)
    if name is not None:
        return VARIABLES.get(name)
    match node:
        case ast.Call(func=ast.Name(id="int"), args=[inner]):
            return fact(tree, inner, depth - 1)
        case ast.Call(func=function, args=args):
            path = resolve(tree, function)
            if path in CALLS:
                return None if args else CALLS[path]
            if isinstance(function, ast.Attribute) and function.attr in OF_A_CONTEXT:
                return OF_A_CONTEXT[function.attr] if _is_context(tree, function.value) else None
            return _returned(tree, function, depth)
        case (
            ast.BinOp(op=ast.Add(), left=ast.BinOp(op=ast.Mult()) as before, right=within)
            | ast.BinOp(op=ast.Add(), left=within, right=ast.BinOp(op=ast.Mult()) as before)
        ) if NODES.search(ast.unparse(before)):  # the number of the node, times its GPUs, and the local rank
            is_local = fact(tree, within, depth - 1) is Fact.LOCAL_RANK or is_process_number(tree, within)
            return Fact.RANK if is_local else None
        case ast.IfExp(body=body, orelse=orelse):
            return _agreed([(tree, body), (tree, orelse)], depth)
        case ast.Name() | ast.Attribute():
            return _of_bindings(tree, node, depth)
        case ast.Subscript():
            return _agreed(keyed(tree, node), depth)
    return None


OF_ONE_NODE = re.compile(
    r"(?:gpus?|proc\w*|devices?|ranks?)_?per_?(?:node|machine|host)|local_(?:world_)?size|^n_?gpus?$"
)


def is_rank_within_node(tree: Tree, node: ast.expr) -> bool:
    """Whether an expression calculates the local rank: the rank, modulo what counts the ranks of one node."""
    match node:
        case ast.BinOp(op=ast.Mod(), left=number, right=per_node) if fact(tree, number) is Fact.RANK:
            name = (dotted(per_node) or "").rpartition(".")[2]
            return fact(tree, per_node) is Fact.LOCAL_WORLD_SIZE or OF_ONE_NODE.search(name.lower()) is not None
    return False


def _is_context(tree: Tree, node: ast.expr) -> bool:
    """Whether an expression is the context that Ray Train gives a worker, or a name that holds it."""
    held = [each.value for each in values(tree, node)] if isinstance(node, ast.Name) else [node]
    return bool(held) and all(isinstance(each, ast.Call) and resolve(tree, each.func) in CONTEXTS for each in held)


def _of_bindings(tree: Tree, node: ast.Name | ast.Attribute, depth: int) -> Fact | None:
    bindings = values(tree, node)
    if not bindings:
        own = OF_FRAMEWORKS.get(node.attr) if isinstance(node, ast.Attribute) else None
        return own or _option(tree, node) or _of_others(tree, node, depth) or _of_a_parameter(tree, node, depth)
    held: list[tuple[Tree, ast.expr]] = []
    for binding in bindings:
        found = given(tree, binding)
        if found is None:
            return None
        held += found
    text = dotted(node)
    if isinstance(node, ast.Attribute) and text is not None:  # args.x = x, where x is what was passed of args.x
        held = [each for each in held if not _comes_back(*each, text, depth)]
        if not held:
            return _option(tree, node)
    return _agreed(held, depth)


def _comes_back(tree: Tree, node: ast.expr, text: str, depth: int) -> bool:
    """Whether a parameter is passed this very attribute by all callers."""
    bindings = values(tree, node) if isinstance(node, ast.Name) and depth else []
    if len(bindings) != 1 or not isinstance(bindings[0].node, ast.arg):
        return False
    found = given(tree, bindings[0]) or []
    return bool(found) and all(dotted(each) == text for _, each in found)


def _of_others(tree: Tree, node: ast.Name | ast.Attribute, depth: int) -> Fact | None:
    """Return what the other files of a project store in this attribute of the options (``args.rank = get_rank()``)."""
    if tree.stored is None or not isinstance(node, ast.Attribute) or not is_of_options(node):
        return None
    found = tree.stored(node.attr)
    return _agreed(found, depth) if found else None


def _of_a_parameter(tree: Tree, node: ast.Name | ast.Attribute, depth: int) -> Fact | None:
    """Return what an attribute of a parameter holds, by what the callers have set in the object that they pass."""
    found = attribute(tree, node.value, node.attr) if isinstance(node, ast.Attribute) else None
    return _agreed(found, depth) if found else None


def _agreed(nodes: Iterable[tuple[Tree, ast.expr]], depth: int) -> Fact | None:
    """Return the fact that all expressions hold that are no plain constants."""
    found = {fact(tree, node, depth - 1) for tree, node in nodes if not _is_constant(node)}
    return next(iter(found)) if len(found) == 1 else None


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))


def _option(tree: Tree, node: ast.expr) -> Fact | None:
    """Return what the launcher passes for ``--local_rank``, where that is what ``args.local_rank`` holds."""
    match node:
        case ast.Attribute(value=ast.Name() as base, attr="local_rank"):
            made = [each.value for each in values(tree, base)]
            if made and all(isinstance(each, ast.Call) and _is_of_transformers(tree, each) for each in made):
                return Fact.LOCAL_RANK
            return Fact.LOCAL_RANK if knows_option(tree, base, "local_rank") else None
    return None


def _is_of_transformers(tree: Tree, call: ast.Call) -> bool:
    return (resolve(tree, call.func) or "").startswith("transformers.") and "TrainingArguments" in ast.unparse(
        call.func
    )


def _returned(tree: Tree, function: ast.expr, depth: int) -> Fact | None:
    found = definition(tree, function)
    return _agreed([(found[0], each) for each in returned(*found)], depth) if found is not None else None


def is_either_rank(tree: Tree, node: ast.expr) -> bool:
    """Whether a variable holds the rank on one way and the local rank on another: the first one is 0 by both."""
    held = [given(tree, each) for each in values(tree, node)] if isinstance(node, (ast.Name, ast.Attribute)) else []
    found = [pair for each in held if each is not None for pair in each if not _is_constant(pair[1])]
    facts = {fact(*each) for each in found} if None not in held else set()
    return facts == {Fact.RANK, Fact.LOCAL_RANK}


def is_process_number(tree: Tree, node: ast.expr, depth: int = 4) -> bool:
    """Whether an expression is the number that mp.spawn gives each process of a host."""
    if isinstance(node, ast.Subscript):
        held = [each for each in keyed(tree, node) if not _is_constant(each[1])]
        return bool(held) and depth > 0 and all(is_process_number(*each, depth - 1) for each in held)
    bindings = values(tree, node)
    return bool(bindings) and depth > 0 and all(_is_spawned(tree, each, depth) for each in bindings)


def _is_spawned(tree: Tree, binding: Binding, depth: int) -> bool:
    if not isinstance(binding.node, ast.arg):
        return binding.value is not None and is_process_number(tree, binding.value, depth - 1)
    function = tree.function(binding.node)
    own = (call_sites(tree, function) if function is not None else None) or []
    sites = [(tree, each) for each in own] or calls_abroad(tree, function)
    if not sites or function is None:
        return False
    direct = [each for there, each in sites if resolve(there, each.func) not in SPAWN]
    if len(direct) < len(sites):  # beside it, a literal is that of one process alone
        passed_on = [argument(each, function, binding.node.arg, spawned=False) for each in direct]
        places = [*function.args.posonlyargs, *function.args.args]
        is_first = (places[1:2] if places[0].arg == "self" else places[:1]) == [binding.node]
        return is_first and all(isinstance(each, ast.Constant) for each in passed_on)
    found = handed(tree, binding) or []
    return bool(found) and all(is_process_number(there, each, depth - 1) for there, each in found)
