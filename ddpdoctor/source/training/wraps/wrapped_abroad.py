"""Models that a function of another file has wrapped."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.training.wraps.wrapped import part_of, possible, wrap_at
from ddpdoctor.source.values.bound import definition, returned, values

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree


def is_wrapped_abroad(tree: Tree, node: ast.expr) -> bool:
    """Whether a variable can hold what a function of another file has wrapped, on all ways through that function."""
    for binding in possible(tree, values(tree, node), node):
        call = binding.whole if binding.whole is not None else binding.value
        found = definition(tree, call.func) if isinstance(call, ast.Call) else None
        if found is None or found[0] is tree or not isinstance(found[1], ast.FunctionDef):
            continue
        there, function = found
        part = binding.part if binding.whole is not None else None
        answers = [each if part is None else part_of(each, part) for each in returned(there, function)]
        wraps = [wrap_at(there, each) if each is not None else None for each in answers]
        if wraps and all(each is not None and each.kind == "DistributedDataParallel" for each in wraps):
            return True
    return False
