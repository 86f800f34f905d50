"""Tests that hold where there is one process alone."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.text.bindings import dotted
from ddpdoctor.source.text.names import resolve

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree

DISTRIBUTED = re.compile(
    r"distributed|is_initialized|is_available|use_?ddp|is_?ddp|^ddp$|is_dist|multi_?gpu|horovod|use_?hvd", re.IGNORECASE
)
"""Names of a flag that is set wherever there are several processes."""
SEVERAL = re.compile(
    r"dist|ddp|initialized|parallel|multi_?(?:gpu|proc)|launcher|world_?size|n_?gpus|horovod|hvd", re.IGNORECASE
)
"""Words of a test that asks whether there are several processes."""
WRAPPER = "DistributedDataParallel"
Compared = dict[bool, set[tuple[type[ast.cmpop], str]]]


def is_alone(tree: Tree, test: ast.expr, *, holds: bool) -> bool:
    """Whether a test that holds, or does not, says that there is one process alone: no rank of several comes by."""
    test, holds = _without_negation(test, holds=holds)
    match test:
        case ast.BoolOp(op=operator, values=parts):
            return isinstance(operator, ast.And) == holds and any(is_alone(tree, each, holds=holds) for each in parts)
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
            return (resolve(tree, kind) or "").rpartition(".")[2] == ("DataParallel" if holds else WRAPPER)
        case ast.Compare(left=left, ops=[operator], comparators=[number]):
            return _is_compared(left, (type(operator), ast.unparse(number)), holds=holds)
        case ast.Name() | ast.Attribute() | ast.Call(args=[], keywords=[]) | ast.Subscript():
            return not holds and _is_several(test.func if isinstance(test, ast.Call) else test)
    return False


def _without_negation(test: ast.expr, *, holds: bool) -> tuple[ast.expr, bool]:
    """Return what is left of a test without ``not`` and ``is True``, and whether that holds where the test does."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _without_negation(operand, holds=not holds)
        case ast.Compare(left=flag, ops=[operator], comparators=[ast.Constant(value=bool(wanted))]):
            is_same = isinstance(operator, (ast.Is, ast.Eq))
            return _without_negation(flag, holds=holds == (wanted == is_same))
    return test, holds


def is_flag_of_one_process(test: ast.expr) -> bool:
    """Whether a test is a flag that holds where there is one process alone: ``not args.distributed``."""
    if not isinstance(test, ast.UnaryOp) or not isinstance(test.op, ast.Not):
        return False
    named = test.operand.func if isinstance(test.operand, ast.Call) else test.operand
    return bool(DISTRIBUTED.search((dotted(named) or "").rpartition(".")[2]))


COUNTED: Compared = {True: {(ast.Eq, "1")}, False: {(ast.Gt, "1"), (ast.NotEq, "1")}}
"""How a count of processes is compared where there is one, by whether that holds."""
UNSET: Compared = {True: {(ast.Eq, "-1"), (ast.Lt, "0")}, False: {(ast.NotEq, "-1"), (ast.GtE, "0"), (ast.Gt, "-1")}}
"""How the local rank is, which is -1 where no launcher has set it."""


def _is_compared(named: ast.expr, how: tuple[type[ast.cmpop], str], *, holds: bool) -> bool:
    owner, _, name = (dotted(named) or "").rpartition(".")
    if name == "local_rank":  # a parameter, or what an object was made with, can be -1 in one place alone
        return how in UNSET[holds] and owner not in {"", "self"}
    return how in COUNTED[holds] and _is_several(named)


def of_several(tree: Tree, node: ast.expr) -> ast.expr:
    """Return what a choice is where there are several processes: ``None if args.local_rank == -1 else sampler``."""
    while isinstance(node, ast.IfExp):
        if is_alone(tree, node.test, holds=True):
            node = node.orelse
        elif is_alone(tree, node.test, holds=False):
            node = node.body
        else:
            break
    return node


def _is_several(named: ast.expr) -> bool:
    if isinstance(named, ast.Subscript):  # of options that are a dict
        return isinstance(named.slice, ast.Constant) and SEVERAL.search(str(named.slice.value)) is not None
    return SEVERAL.search((dotted(named) or "").rpartition(".")[2]) is not None
