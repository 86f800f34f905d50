"""Batches that a source cuts by hand, from the first sample to the last, on every rank."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Script

STARTS = {"range", "torch.arange", "numpy.arange"}
SHARED_OUT = re.compile(
    r"[\w)\]]\[[^\]\n\"']*(rank|world)|rank\w*(\(\))? *[*%]|[*%] *[\w.]*rank|// *[\w.]*(rank|world)"
    r"|scatter|Sampler|chunk\(|_split\(|\.shard\(|range\([^)\n]*rank|nodes?plitter",
    re.IGNORECASE,
)
"""What says that somebody shares out the data."""
DRAWN = re.compile(r"randperm|shuffle|permutation|choice\(|\.sample\(|multinomial|randint")


def same_cuts(script: Script) -> Iterator[tuple[ast.For, ast.Subscript]]:
    """Yield loops over batches in which a wrapped model learns from slices that are the same on all ranks."""
    if SHARED_OUT.search(script.text) or DRAWN.search(script.text):
        return
    for loop in script.nodes(ast.For):
        if isinstance(loop.target, ast.Name) and _goes_through_all(script, loop.iter) and script.learns(loop):
            cut = next(_cuts(script, loop, loop.target.id), None)
            if cut is not None and _is_fed(script, loop):
                yield loop, cut


def _goes_through_all(script: Script, starts: ast.expr) -> bool:
    """Whether a loop begins at 0 and goes to the length of something, batch by batch."""
    made = script.value(starts) if isinstance(starts, ast.Name) else starts
    match made:
        case ast.Call(func=function, args=[ast.Constant(value=0), last, _]):
            is_length = isinstance(last, ast.Call) and ast.unparse(last.func) == "len"
            is_size = isinstance(last, ast.Subscript) and ast.unparse(last.value).endswith(".shape")
            return (script.resolve(function) or ast.unparse(function)) in STARTS and (is_length or is_size)
    return False


def _cuts(script: Script, loop: ast.For, start: str) -> Iterator[ast.Subscript]:
    """Yield the slices that begin where the batch does, of what is the same on all ranks."""
    for statement in loop.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                index = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
                begins = isinstance(index, ast.Slice) and isinstance(index.lower, ast.Name) and index.lower.id == start
                if begins and not script.can_differ(node.value):
                    yield node


def _is_fed(script: Script, loop: ast.For) -> bool:
    """Whether a model that DDP wraps, on every way to this line, is called in the loop."""
    calls = [node for statement in loop.body for node in ast.walk(statement) if isinstance(node, ast.Call)]
    wraps = [script.wrap(each.func) for each in calls if isinstance(each.func, (ast.Name, ast.Attribute))]
    return any(wrap is not None and wrap.sure and wrap.kind == "DistributedDataParallel" for wrap in wraps)
