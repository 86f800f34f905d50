"""A collective is given what is no tensor, list or operation, or its result is used where there is none.

## What happens

`dist.all_reduce(loss.item())` is a TypeError: collectives work on tensors, in place. And `total =
dist.all_reduce(total)` makes total None: what a collective computes stands in the tensor that it was given. The
operation is one of `dist.ReduceOp`, not its name as text; `all_gather_object` fills a list that it is given, with a
place for each rank, and `broadcast_object_list` takes a list on all ranks; `new_group` takes a list of ranks.

## How to be sure

`print(dist.all_reduce(tensor))` prints None. Reported only where `dist` is torch.distributed by the file's imports,
and without `async_op=True`, which returns a handle.

## How to mend it

Put the number into a tensor, `total = torch.tensor(value, device=device)`, and read it from there after
`dist.all_reduce(total)`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/distributed/distributed_c10d.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, is_open, keyword, lint, log_pattern

from ._numbers import is_number

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Tree

AILMENT = Ailment("DDP752", Severity.ERROR)


IN_PLACE = tuple(
    f"torch.distributed.{name}" for name in "all_reduce broadcast reduce all_gather barrier scatter gather".split()
)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look at what such a call is given, and at what becomes of its result."""
    for call in script.calls(*IN_PLACE):
        name = script.code(call.func)
        first = call.args[0] if call.args else None
        if (
            first is not None
            and name.rpartition(".")[2] in {"all_reduce", "broadcast", "reduce"}
            and is_number(script, first)
        ):
            yield Finding(
                f"{name} is given {script.code(first)}, which is no tensor: a TypeError",
                (script.seen(call, f"value = torch.tensor({script.code(first)}, device=device)"),),
                Fix("put the number into a tensor, reduce that, and read it afterwards"),
                script.place(call),
            )
        parent = script.tree.parents.get(call)
        is_used = (
            isinstance(parent, (ast.BinOp, ast.Attribute, ast.Subscript))
            or (isinstance(parent, ast.Assign) and _is_same(parent, first))
            or _is_listed(script, call)
        )
        if is_used and keyword(call, "async_op") is None and not is_open(call) and len(call.args) < MANY:
            yield Finding(
                f"{name} returns None: its result stands in {script.code(first) if first else 'its tensor'}",
                (script.seen(call, "the call alone, in a line of its own"),),
                Fix("call it, and go on with the tensor"),
                script.place(call),
            )


@lint
def in_a_helper(script: Script) -> Iterator[Finding]:
    """Look at numbers that are handed to a function of the project which reduces its argument as it is."""
    for call in script.nodes(ast.Call):
        if not call.args or is_open(call) or not is_number(script, call.args[0]):
            continue
        found = script.defined(call.func)
        if found is None or isinstance(found[1], ast.Lambda):
            continue
        if _reduces_first(script, found[0], found[1]):
            name, value = script.code(call.func), script.code(call.args[0])
            yield Finding(
                f"{name} reduces {value}, which is a number and no tensor: a TypeError",
                (script.seen(call, f"{name}(torch.tensor({value}, device=device))"),),
                Fix("put the number into a tensor, reduce that, and read it afterwards"),
                script.place(call),
            )


def _reduces_first(script: Script, tree: Tree, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function reduces its first argument as it was given."""
    names = [each.arg for each in function.args.args if each.arg not in {"self", "cls"}]
    bound = tree.bindings.get(function, {}).get(names[0], []) if names else []
    for inner in tree.of(ast.Call):
        if tree.function(inner) is function and script.names_in(tree, inner.func) in IN_PLACE[:3]:
            match inner.args:
                case [ast.Name(id=name), *_] if name == names[0]:
                    return all(isinstance(each.node, ast.arg) or each.line >= inner.lineno for each in bound)
    return False


MANY = 4  # arguments by place: one of them can be async_op


def _is_listed(script: Script, call: ast.Call) -> bool:
    """Whether each result is kept in a list, which has a name that is read: of tensors, it would be."""
    tree = script.tree
    listed = next((each for each in tree.above(call) if not isinstance(each, ast.IfExp)), None)
    if not isinstance(listed, ast.ListComp) or not isinstance(call.args[0] if call.args else None, ast.Call):
        return False  # the tensors that a variable holds are reduced in place, and the list is of no use
    match tree.parents.get(listed):
        case ast.Assign(targets=[ast.Name(id=name)]):
            return any(tree.function(each) is tree.function(call) for each in tree.read.get(name, ()))
    return False


def _is_same(parent: ast.Assign, first: ast.expr | None) -> bool:
    """Whether a result is stored under the name of the tensor itself."""
    return first is not None and any(ast.unparse(target) == ast.unparse(first) for target in parent.targets)


@log_pattern(
    r"Invalid function argument\. Expected parameter `(?P<name>\w+)` (?:to be )?of type "
    r"(?P<want>(?:List\[)?torch\.Tensor\]?)"
    r"(?:\s+but got <class '(?P<type>[\w.]+)'>)?"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report what was given, where the message has it: that of torch 2.2 has not."""
    given = match["type"]
    is_list = match["want"].startswith("List")
    yield Finding(
        f"a collective wants {'a list of tensors' if is_list else 'a tensor'} as {match['name']}"
        + (f", and is given {'an' if given[0] in 'aeiou' else 'a'} {given}" if given else ""),
        (record.proof(match, match["want"]),),
        LISTED if is_list else WRAPPED,
        record.place,
    )


LISTED = Fix(
    "give it a list with a tensor for each rank",
    diff="-dist.all_gather(out, x)\n"
    "+parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]\n+dist.all_gather(parts, x)",
)
WRAPPED = Fix(
    "put the value into a tensor on this rank's device, and read it back afterwards",
    diff="-dist.all_reduce(loss.item())\n+total = loss.detach().clone()\n+dist.all_reduce(total)",
)


@log_pattern(
    r"reduceOp = [^\n]{0,199}\n(?:[ ~^]*\n)?TypeError: [^\n]*incompatible function arguments"
    r"(?:(?:[^\n]*\n){1,5}Invoked with: <[^>\n]*>, (?P<op>[^\n]{1,60}))?"
)
def of_the_operation(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the operation, which torch binds to a type of its own."""
    given = match["op"] or "..."
    word = given.strip("'\"").upper()
    name = word if word in OPERATIONS else "SUM"
    yield Finding(
        f"a collective is given {f'op={given}' if match['op'] else 'an op'}, which is no dist.ReduceOp",
        (record.proof(None, f"op=dist.ReduceOp.{name}"),),
        Fix("name the operation by its constant", diff=f"-op={given}\n+op=dist.ReduceOp.{name}"),
        record.place,
    )


OPERATIONS = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"}


@log_pattern(
    r"in (?P<name>all_gather_object|gather_object)\n[^\n]*object\w*\[\w+\] = [^\n]*\n(?:[ ~^]*\n)?"
    r"(?:TypeError: '(?P<kind>\w+)' object does not support item assignment"
    r"|IndexError: list assignment index out of range)"
)
def of_the_objects(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find the list that is none, or is too short."""
    name, kind = match["name"], match["kind"]
    given = {"NoneType": "None", None: "a list that has not a place for each rank"}.get(kind, f"a {kind}")
    yield Finding(
        f"{name} is given {given} to put the objects into",
        (record.proof(None, "a list with a place for each rank"),),
        Fix(
            "make the list first",
            diff=f"+objects = [None] * dist.get_world_size()\n dist.{name}(objects, mine)",
        ),
        record.place,
    )


@log_pattern(
    r"in broadcast_object_list\n[^\n]*object_list[^\n]*\n(?:[ ~^]*\n)?TypeError: "
    r"(?:object of type '(?P<none>\w+)' has no len|'(?P<kind>\w+)' object does not support item)"
)
def of_what_is_sent(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find the list that one rank alone has made, or the object itself that was to be in a list."""
    kind = match["none"] or match["kind"]
    yield Finding(
        f"broadcast_object_list is given {'None' if kind == 'NoneType' else f'a {kind}'}, and takes a list: on the "
        "other ranks as well, as long as on the rank that sends",
        (record.proof(None, "a list, as long as on src"),),
        Fix(
            "make the list on all ranks; what src has put into it takes the place of what the others have",
            diff="-dist.broadcast_object_list(config, src=0)\n+objects = [config if dist.get_rank() == 0 else None]\n"
            "+dist.broadcast_object_list(objects, src=0)\n+config = objects[0]",
        ),
        record.place,
    )


@log_pattern(
    r"in _new_group_with_tag\n[^\n]*sorted\(ranks\)\n(?:[ ~^]*\n)?TypeError: '(?P<kind>\w+)' object is not iterable"
)
def of_the_ranks(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find the number that was to be a list."""
    yield Finding(
        f"new_group is given an object of type {match['kind']}, and takes a list of ranks",
        (record.proof(None, "a list of ranks"),),
        Fix("make it a list", diff="-group = dist.new_group(0)\n+group = dist.new_group([0])"),
        record.place,
    )
