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
    r"distributed|is_initialized|is_available|use_?ddp|is_?ddp|^ddp$|is_dist|multi_?gpu", re.IGNORECASE
)
"""Names of a flag that is set wherever there are several processes."""
SEVERAL = re.compile(r"dist|ddp|initialized|parallel|multi_?(?:gpu|proc)|launcher|world_?size|n_?gpus", re.IGNORECASE)
"""Words of a test that asks whether there are several processes."""
WRAPPER = "DistributedDataParallel"


def is_alone(tree: Tree, test: ast.expr, *, holds: bool) -> bool:
    """Whether a test that holds, or does not, says that there is one process alone: no rank of several comes by."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return is_alone(tree, operand, holds=not holds)
        case ast.BoolOp(op=operator, values=parts):
            return isinstance(operator, ast.And) == holds and any(is_alone(tree, each, holds=holds) for each in parts)
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
            return (resolve(tree, kind) or "").rpartition(".")[2] == ("DataParallel" if holds else WRAPPER)
        case ast.Compare(left=left, ops=[operator], comparators=[ast.Constant(value=1)]):
            return isinstance(operator, ast.Eq if holds else (ast.Gt, ast.NotEq)) and _is_several(left)
        case ast.Name() | ast.Attribute() | ast.Call(args=[], keywords=[]) | ast.Subscript():
            return not holds and _is_several(test.func if isinstance(test, ast.Call) else test)
    return False


def is_flag_of_one_process(test: ast.expr) -> bool:
    """Whether a test is a flag that holds where there is one process alone: ``not args.distributed``."""
    if not isinstance(test, ast.UnaryOp) or not isinstance(test.op, ast.Not):
        return False
    named = test.operand.func if isinstance(test.operand, ast.Call) else test.operand
    return bool(DISTRIBUTED.search((dotted(named) or "").rpartition(".")[2]))


def _is_several(named: ast.expr) -> bool:
    if isinstance(named, ast.Subscript):  # of options that are a dict
        return isinstance(named.slice, ast.Constant) and SEVERAL.search(str(named.slice.value)) is not None
    return SEVERAL.search((dotted(named) or "").rpartition(".")[2]) is not None
