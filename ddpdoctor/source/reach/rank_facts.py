"""What of a source holds a rank: through assignments, conversions, argparse, the environment and helper functions."""

from __future__ import annotations

import ast
import enum
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.names import resolve
from ddpdoctor.source.reach.sites import SPAWN, argument, call_sites, made_of, passed
from ddpdoctor.source.tree import FUNCTIONS, Binding, dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddpdoctor.source.tree import Function, Tree


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
    "deepspeed.comm.get_rank": Fact.RANK,
    "deepspeed.comm.get_local_rank": Fact.LOCAL_RANK,
    "deepspeed.comm.get_world_size": Fact.WORLD_SIZE,
    "horovod.torch.rank": Fact.RANK,
    "horovod.torch.local_rank": Fact.LOCAL_RANK,
    "horovod.torch.size": Fact.WORLD_SIZE,
    "horovod.torch.local_size": Fact.LOCAL_WORLD_SIZE,
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
FIRST = frozenset(
    "is_main_process is_local_main_process is_last_process is_global_zero is_world_process_zero"
    " is_local_process_zero is_rank_zero".split()
)
"""Attributes and methods of theirs that are true on one rank, or on one of each host."""
DECORATORS = re.compile(
    r"(?:^|\.)(?:rank_zero_only|on_main_process|on_local_main_process|on_last_process|on_process|on_local_process|one_rank_only)$"
)
"""Their decorators of functions that one rank alone runs."""
CONTEXTS = ("ray.train.get_context", "ray.train.context.get_context")
OF_A_CONTEXT = {
    "get_world_rank": Fact.RANK,
    "get_local_rank": Fact.LOCAL_RANK,
    "get_node_rank": Fact.NODE_RANK,
    "get_world_size": Fact.WORLD_SIZE,
    "get_local_world_size": Fact.LOCAL_WORLD_SIZE,
}
"""Methods of the context that Ray Train gives a worker."""
GETTERS = {"os.environ.get", "os.getenv", "os.environ.setdefault"}
PARSERS = {"parse_args", "parse_known_args"}
ONE_RANK, OTHER_RANKS = "one rank", "the other ranks"
DEPTH = 10
RANKISH = re.compile(
    r"rank|main|master|primary|chief|leader|is_first|gpu|local|proc_?id|process_(?:id|index|zero)|node|host|device|worker"
    r"|zero|coordinator|save|logger|writer|verbose|head|is_root|root_only|should|tpu|xla|^pid$|enabled|^do_",
    re.IGNORECASE,
)
"""Words in whose presence a test is taken to depend on the rank, where that cannot be shown."""
OF_PLACES = re.compile(
    r"rank|main|master|primary|leader|gpu|local|proc_?id|process_(?:id|index)|node|host|device|worker|tpu|xla|^pid$",
    re.IGNORECASE,
)
"""Those of them that a path has which is another on each rank."""
HOW_OFTEN = re.compile(
    r"(?:save|checkpoint|ckpt)_?(?:model_?)?(?:every|freq\w*|interval|steps?|epochs?|period|per_epoch)(?:_\w+)?$|^save_(?:dir|path|folder)$",
    re.IGNORECASE,
)
"""What looks like such a word, and says how often something is saved, or where."""


def variable(tree: Tree, node: ast.expr) -> str | None:
    """Return the name of the environment variable that an expression reads, as the text that it is."""
    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
            return name if resolve(tree, value) == "os.environ" else None
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
            return name if resolve(tree, function) in GETTERS else None
    return None


def values(tree: Tree, node: ast.expr) -> list[Binding]:
    """Return what can stand in a variable or an attribute."""
    if isinstance(node, ast.Name):
        return tree.lookup(node.id, node)
    text = dotted(node)
    return tree.attributes.get((tree.owner(node, text), text), []) if text else []


def fact(tree: Tree, node: ast.expr, depth: int = DEPTH) -> Fact | None:  # noqa: PLR0911 - one case an expression
    """Return what a number is; None where that is not certain."""
    if depth == 0:
        return None
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
        case ast.IfExp(body=body, orelse=orelse):
            return _agreed(tree, (body, orelse), depth)
        case ast.Name() | ast.Attribute():
            return _of_bindings(tree, node, depth)
    return None


def _is_context(tree: Tree, node: ast.expr) -> bool:
    """Whether an expression is the context that Ray Train gives a worker, or a name that holds it."""
    held = [each.value for each in values(tree, node)] if isinstance(node, ast.Name) else [node]
    return bool(held) and all(isinstance(each, ast.Call) and resolve(tree, each.func) in CONTEXTS for each in held)


def _of_bindings(tree: Tree, node: ast.expr, depth: int) -> Fact | None:
    bindings = values(tree, node)
    if not bindings:
        own = OF_FRAMEWORKS.get(node.attr) if isinstance(node, ast.Attribute) else None
        return own or _option(tree, node)
    held: list[ast.expr] = []
    for binding in bindings:
        given = passed(tree, binding) if isinstance(binding.node, ast.arg) else [binding.value]
        if given is None or any(each is None for each in given):
            return None
        held += [each for each in given if each is not None]
    return _agreed(tree, held, depth)


def _agreed(tree: Tree, nodes: Iterable[ast.expr], depth: int) -> Fact | None:
    """Return the fact that all expressions hold that are no plain constants."""
    found = {fact(tree, node, depth - 1) for node in nodes if not _is_constant(node)}
    return next(iter(found)) if len(found) == 1 else None


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))


def _option(tree: Tree, node: ast.expr) -> Fact | None:
    """Return what the launcher passes for ``--local_rank``, where that is what ``args.local_rank`` holds."""
    match node:
        case ast.Attribute(value=ast.Name() as base, attr="local_rank"):
            return Fact.LOCAL_RANK if is_parsed(tree, base) and "local_rank" in options(tree) else None
    return None


def is_parsed(tree: Tree, base: ast.Name, depth: int = 4) -> bool:
    """Whether a name holds what an argument parser returned, and nothing else."""
    bindings = tree.lookup(base.id, base)
    return bool(bindings) and all(_is_parsed(tree, each, depth) for each in bindings)


def _is_parsed(tree: Tree, binding: Binding, depth: int) -> bool:
    if isinstance(binding.node, ast.arg):
        given = passed(tree, binding) or []
        return bool(given) and all(
            isinstance(each, ast.Name) and depth > 0 and is_parsed(tree, each, depth - 1) for each in given
        )
    match binding.value:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in PARSERS
        case ast.Call(func=ast.Name() as function, args=[]):
            found = answers(tree, function) if depth else []
            return bool(found) and all(_is_parsed(there, Binding(each, each), depth - 1) for there, each in found)
        case ast.Name() as name:
            return depth > 0 and is_parsed(tree, name, depth - 1)
    return False


def options(tree: Tree) -> dict[str, ast.Call]:
    """Return the calls of ``add_argument`` of a file, by the attribute that they fill."""
    found: dict[str, ast.Call] = {}
    for node in tree.of(ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if names:
                found[max(names, key=len).lstrip("-").replace("-", "_")] = node
    return found


def function_named(tree: Tree, node: ast.expr) -> Function | None:
    """Return the function of the file that an expression calls: by its plain name, or as a method of ``self``."""
    match node:
        case ast.Name(id=name):
            found = [each.node for each in tree.lookup(name, node)]
        case ast.Attribute(value=ast.Name(id=base) as thing, attr=name):
            owner = tree.class_of(node) if base in {"self", "cls"} else made_of(tree, thing)
            found = [each.node for each in tree.bindings.get(owner, {}).get(name, [])] if owner else []
        case _:
            return None
    return found[0] if len(found) == 1 and isinstance(found[0], FUNCTIONS) else None


def definition(tree: Tree, node: ast.expr) -> tuple[Tree, Function] | None:
    """Return the function that an expression calls, of this file or of the project, and the tree that it stands in."""
    if (named := function_named(tree, node)) is not None:
        return tree, named
    if tree.abroad is None or (path := resolve(tree, node)) is None or "." not in path:
        return None
    found = tree.abroad(path)
    return (found[0], found[1]) if found is not None and isinstance(found[1], ast.FunctionDef) else None


def answers(tree: Tree, node: ast.expr) -> list[tuple[Tree, ast.expr]]:
    """Return what the function that an expression calls returns, each with the tree that it stands in."""
    found = definition(tree, node)
    return [(found[0], each) for each in returned(*found)] if found is not None else []


def returned(tree: Tree, function: Function) -> Iterator[ast.expr]:
    """Yield the expressions that a function returns."""
    if isinstance(function, ast.Lambda):
        yield function.body
        return
    for node in tree.of(ast.Return):
        if node.value is not None and tree.function(node) is function:
            yield node.value


def _returned(tree: Tree, function: ast.expr, depth: int) -> Fact | None:
    found = definition(tree, function)
    return _agreed(found[0], returned(*found), depth) if found is not None else None


def who(tree: Tree, test: ast.expr, depth: int = DEPTH) -> str | None:  # noqa: C901, PLR0911, PLR0912 - a case a shape
    """Return which ranks a test lets through, where it depends on the rank alone: one, or the others."""
    if _is_first(tree, test):
        return ONE_RANK
    match test if depth else None:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            if fact(tree, operand) in {Fact.RANK, Fact.LOCAL_RANK}:
                return ONE_RANK
            return other(who(tree, operand, depth - 1))
        case ast.BoolOp(op=ast.And(), values=parts):
            sides = {who(tree, part, depth - 1) for part in parts} - {None}
            return ONE_RANK if ONE_RANK in sides else next(iter(sides), None)
        case ast.BoolOp(op=ast.Or(), values=parts):
            sides = {who(tree, part, depth - 1) for part in parts if not _is_alone(part)}
            return ONE_RANK if sides == {ONE_RANK} else None
        case ast.Compare(left=left, ops=[operator], comparators=[ast.Constant(value=int(number))]):
            if fact(tree, left) not in {Fact.RANK, Fact.LOCAL_RANK} and not is_process_number(tree, left):
                return None
            match operator, number:
                case (ast.Eq(), _) | (ast.Lt(), 1) | (ast.LtE(), 0):
                    return ONE_RANK
                case (ast.NotEq(), _) | (ast.Gt(), 0) | (ast.GtE(), 1):
                    return OTHER_RANKS
        case ast.Name() | ast.Attribute():
            if fact(tree, test) in {Fact.RANK, Fact.LOCAL_RANK}:
                return OTHER_RANKS
            sides = {who(tree, each, depth - 1) if each is not None else None for each in _held(tree, test)}
            return next(iter(sides)) if len(sides) == 1 else None
        case ast.Call(func=function, args=[], keywords=[]):
            said = [(there, each) for there, each in answers(tree, function) if not _is_true(each)]
            sides = {who(there, each, depth - 1) for there, each in said}
            if said and all(isinstance(each, ast.Constant) for _, each in said):
                return _of_branches(tree, function, depth)
            return next(iter(sides)) if len(sides) == 1 else None
    return None


def _of_branches(tree: Tree, function: ast.expr, depth: int) -> str | None:
    """Return for which ranks a helper answers True that has ``if rank == 0: return True`` and ``return False``."""
    found = definition(tree, function)
    if found is None or isinstance(found[1], ast.Lambda):
        return None
    there, named = found
    sides: set[str | None] = set()
    for test in (each for each in ast.walk(named) if isinstance(each, ast.If)):
        match test.body:
            case [ast.Return(value=ast.Constant(value=bool(answer)))] if side := who(there, test.test, depth - 1):
                sides.add(side if answer else other(side))
    return next(iter(sides)) if len(sides) == 1 else None


def _held(tree: Tree, node: ast.expr) -> list[ast.expr | None]:
    """Return what a variable can hold; of a parameter, what all calls pass for it."""
    found: list[ast.expr | None] = []
    for each in values(tree, node):
        found += (passed(tree, each) or [None]) if isinstance(each.node, ast.arg) else [each.value]
    return found


def _is_true(node: ast.expr) -> bool:
    """Whether it is what a helper answers where there is one process alone."""
    return isinstance(node, ast.Constant) and node.value is True


ALONE = re.compile(r"distributed|is_initialized|is_available|use_?ddp|is_?ddp|^ddp$|is_dist|multi_?gpu", re.IGNORECASE)


def _is_alone(test: ast.expr) -> bool:
    """Whether a test holds where there is one process alone: ``not args.distributed``."""
    if not isinstance(test, ast.UnaryOp) or not isinstance(test.op, ast.Not):
        return False
    named = test.operand.func if isinstance(test.operand, ast.Call) else test.operand
    return bool(ALONE.search((dotted(named) or "").rpartition(".")[2]))


def is_process_number(tree: Tree, node: ast.expr, depth: int = 4) -> bool:
    """Whether an expression is the number that mp.spawn gives each process of a host."""
    bindings = values(tree, node)
    return bool(bindings) and depth > 0 and all(_is_spawned(tree, each, depth) for each in bindings)


def _is_spawned(tree: Tree, binding: Binding, depth: int) -> bool:
    if not isinstance(binding.node, ast.arg):
        return binding.value is not None and is_process_number(tree, binding.value, depth - 1)
    function = tree.function(binding.node)
    sites = call_sites(tree, function) if function is not None else None
    if not sites or function is None:
        return False
    if all(resolve(tree, each.func) in SPAWN for each in sites):
        return [*function.args.posonlyargs, *function.args.args][:1] == [binding.node]
    given = passed(tree, binding) or []
    return bool(given) and all(is_process_number(tree, each, depth - 1) for each in given)


def _is_first(tree: Tree, test: ast.expr) -> bool:
    """Whether a test is one by which a framework says that this is the first rank, or ``local_rank in (-1, 0)``."""
    if isinstance(test, ast.Call) and not (test.args or test.keywords):
        test = test.func
    match test:
        case ast.Attribute(attr=name):
            return name in FIRST and not values(tree, test) and function_named(tree, test) is None
        case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.Tuple(elts=given) | ast.List(elts=given)]):
            numbers = {ast.unparse(each) for each in given}  # -1 stands for a training of one process
            return {"0"} <= numbers <= {"0", "-1"} and fact(tree, left) in {Fact.RANK, Fact.LOCAL_RANK}
    return False


def other(side: str | None) -> str | None:
    """Return the complement."""
    return {ONE_RANK: OTHER_RANKS, OTHER_RANKS: ONE_RANK}.get(side or "")


def is_rankish(tree: Tree, test: ast.expr, depth: int = 4, words: re.Pattern[str] = RANKISH) -> bool:
    """Whether a test can depend on the rank: by a word in it, or in what its names were assigned."""
    for node in ast.walk(test):
        if _is_shared(tree, node):
            continue
        text = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "__main__":
            text = node.value
        if words.search(HOW_OFTEN.sub("", text)):
            return True
        if depth and (isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and dotted(node))):
            found = values(tree, node)
            if any(each.value is not None and is_rankish(tree, each.value, depth - 1, words) for each in found):
                return True
    return False


def _is_shared(tree: Tree, node: ast.AST) -> bool:
    """Whether a node is an option of the command line, which is the same on all ranks unless the file changes it.

    So is how many GPUs there are, and whether there are any.
    """
    if isinstance(node, (ast.Attribute, ast.Name)) and resolve(tree, node) in SAME_ON_ALL:
        return True
    if not isinstance(node, ast.Attribute) or re.search("rank|gpu|node|device", node.attr):
        return False
    return isinstance(node.value, ast.Name) and not values(tree, node) and is_parsed(tree, node.value)


SAME_ON_ALL = frozenset(
    "torch.cuda.device_count torch.cuda.is_available torch.distributed.is_available torch.distributed.is_initialized"
    " torch.device".split()
)
PERSONAL = re.compile(
    r"temp|tmp|uuid|getpid|BytesIO|StringIO|buffer|stream|datetime|time|rand|seed|cwd|hostname|socket"
)
"""Words of what each process has for itself."""


OPTIONS = re.compile(r"^(args?|opts?|options?|cfg|conf|config|hparams|flags|params|parser)$", re.IGNORECASE)
"""Names of what holds the options of a run."""


def is_personal(tree: Tree, node: ast.expr, depth: int = 6) -> bool:
    """Whether an expression is made of what each process has for itself, or of something that cannot be followed."""
    for each in ast.walk(node):
        text = each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else ""
        if PERSONAL.search(text):
            return True
        is_named = isinstance(each, (ast.Name, ast.Attribute)) and not OPTIONS.match(text)
        if not is_named or not isinstance(each, ast.expr) or _is_shared(tree, each):
            continue
        if any(_is_personal(tree, binding, depth) for binding in values(tree, each)):
            return True
    return False


def _is_shared_abroad(tree: Tree, parameter: ast.arg, depth: int) -> bool:
    """Whether the trainings in other files, which alone call a function, pass the same on all ranks for a parameter."""
    function = tree.function(parameter)
    if tree.callers is None or not isinstance(function, ast.FunctionDef) or call_sites(tree, function) != []:
        return False
    calls = tree.callers(function)
    given = [
        (there, argument(site, function, parameter.arg, spawned=resolve(there, site.func) in SPAWN))
        for there, site in calls
    ]
    return bool(given) and all(
        each is not None and not is_rankish(there, each, words=OF_PLACES) and not is_personal(there, each, depth - 1)
        for there, each in given
    )


def _counts(tree: Tree, iterated: ast.expr) -> bool:
    """Whether a loop counts, so that its variable is the same on all ranks in each pass."""
    return isinstance(iterated, ast.Call) and resolve(tree, iterated.func) in {"range", "tqdm.trange"}


def _is_personal(tree: Tree, binding: Binding, depth: int) -> bool:
    if binding.path or isinstance(binding.node, (*FUNCTIONS, ast.ClassDef)):
        return False
    if isinstance(binding.node, ast.For) and _counts(tree, binding.node.iter):
        return is_personal(tree, binding.node.iter, depth - 1) if depth else True
    given = passed(tree, binding) if isinstance(binding.node, ast.arg) else [binding.value]
    if given is None and isinstance(binding.node, ast.arg):
        return depth == 0 or not _is_shared_abroad(tree, binding.node, depth)
    if depth == 0 or given is None:
        return True
    return any(each is None or is_personal(tree, each, depth - 1) for each in given)
