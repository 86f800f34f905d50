"""What the ranks do one after another: the first one, while the others wait, and then these."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.guards import guards
from ddpdoctor.source.text.names import resolve

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree

BARRIERS = {"torch.distributed.barrier", "torch.distributed.monitored_barrier"}


def is_in_turn(tree: Tree, node: ast.AST) -> bool:
    """Whether a node stands between two barriers that some ranks alone come to: ``if rank: barrier()`` before it.

    The second one, for the ranks that skipped the first, is behind it.
    """
    function = tree.function(node)
    waits = [
        each
        for each in tree.of(ast.Call)
        if resolve(tree, each.func) in BARRIERS
        and tree.function(each) is function
        and any(guard.is_rankish(tree) for guard in guards(tree, each))
    ]
    before = [each for each in waits if each.lineno < getattr(node, "lineno", 0)]
    return len(before) % 2 == 1 and len(waits) > len(before)


FIRST = frozenset({"main_process_first", "local_main_process_first"})
"""Methods of an Accelerator that let one rank go through a block before the others."""
OF_ONE = re.compile(r"main_process|process_index|rank")
SAYS = re.compile(r"print|log|warn|init_trackers|wandb|makedirs|mkdir|create_repo|save|dump|seed|_model\(\)|vars\(")
"""What one rank does that leaves the others nothing to read."""


def one_is_waited_for(tree: Tree, node: ast.expr) -> bool:
    """Whether the ranks of an Accelerator wait before a node of its function for what one of them has done alone.

    What a function does that is handed the Accelerator is not followed: it can be that.
    """
    around = tree.function(node) or tree.module
    calls = [each for each in ast.walk(around) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    before = [each for each in calls if each.lineno <= node.lineno]
    if any(isinstance(each.func, ast.Attribute) and each.func.attr in FIRST for each in before):
        return True
    waits = [each for each in before if isinstance(each.func, ast.Attribute) and each.func.attr == "wait_for_everyone"]
    last = max((each.lineno for each in waits), default=0)
    return any(
        (isinstance(each, ast.If) and _works_alone(each)) or (isinstance(each, ast.Call) and _is_handed_all(each))
        for each in ast.walk(around)
        if getattr(each, "lineno", last) < last
    )


def _works_alone(branch: ast.If) -> bool:
    """Whether one rank does something in a branch that others can wait for."""
    if not OF_ONE.search(ast.unparse(branch.test)):
        return False
    calls = [each for part in (*branch.body, *branch.orelse) for each in ast.walk(part) if isinstance(each, ast.Call)]
    return any(not SAYS.search(ast.unparse(each)) for each in calls if not isinstance(each.func, ast.Subscript))


def _is_handed_all(call: ast.Call) -> bool:
    """Whether a call is handed an Accelerator as a whole."""
    given = [*call.args, *(each.value for each in call.keywords)]
    return any(isinstance(each, ast.Name) and each.id.startswith("accelerator") for each in given)
