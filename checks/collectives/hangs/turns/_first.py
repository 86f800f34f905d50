"""A block that one process runs before the others, who wait for its end, and in it a call in which all ranks meet."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import ACCELERATOR, COLLECTIVES, DDP, FSDP, Doing, last_name, statement_at, tree_of

from ._halves import out_of_turn, passed_half
from ._missed_half import missed_half

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Script, Site, Stalled

FIRST = frozenset("main_process_first local_main_process_first rank_zero_first one_rank_first".split())
"""Contexts of Accelerate, transformers, Fabric and Ignite that let one process in, and the others when it is out."""
FABRICS = ("lightning.fabric.Fabric", "lightning.Fabric", "lightning_fabric.Fabric")
BARRIERS = frozenset({"torch.distributed.barrier", "torch.distributed.monitored_barrier"})
"""They are met by the barrier at the door of the block, one call early: no rank waits for ever."""
MEET = (
    ((ACCELERATOR,), frozenset("gather gather_for_metrics reduce pad_across_processes".split())),
    (FABRICS, frozenset("all_gather all_reduce broadcast".split())),
)
WRAP = (((ACCELERATOR,), frozenset({"prepare", "prepare_model"})), (FABRICS, frozenset({"setup", "setup_module"})))
A_MODEL = re.compile(
    r"(?:^|[._])(?:\w*model|\w*net|backbone|\w*encoder|\w*decoder|policy|actor|critic)$", re.IGNORECASE
)

InTurns = tuple[ast.Call, str, ast.With]


def in_turns(script: Script) -> Iterator[InTurns]:
    """Yield the calls in such blocks, with what each is, and the block."""
    for block in script.nodes(ast.With):
        entered = [each.context_expr.func for each in block.items if isinstance(each.context_expr, ast.Call)]
        if any(last_name(each) in FIRST for each in entered):
            for call in script.inside(*block.body):
                what = _meets(script, call) if isinstance(call, ast.Call) else ""
                if what and isinstance(call, ast.Call) and script.one_rank_guard(call) is None:
                    yield call, what, block


class InTurn(NamedTuple):
    """A rank that waits within such a block, its line there, a rank that waits at the block's head, and that line."""

    one: Position
    at: Site
    other: Position
    door: Site


def in_turn(event: Stalled) -> InTurn | None:
    """Find a rank that waits for the others in a block which they enter when it is out of it."""
    waiting = event.doing(Doing.WAITING)
    for other in waiting:
        for above, door in zip((None, *other.stack), other.stack or filter(None, (other.site,)), strict=False):
            block = statement_at(tree_of(door.file), door.line)
            if not isinstance(block, ast.With) or not _comes_in_turns(block, above):
                continue
            first, last = block.body[0].lineno, block.body[-1].end_lineno or 0
            for one in waiting:
                inside = [each for each in _lines(one) if each.file == door.file and first <= each.line <= last]
                if one is not other and inside:
                    return InTurn(one, inside[0], other, door)
    return None


def by_turns(event: Stalled) -> bool:
    """Whether ranks wait in vain where they come one after the other."""
    return bool(out_of_turn(event) or passed_half(event) or in_turn(event) or missed_half(event))


def _lines(position: Position) -> tuple[Site, ...]:
    return tuple(position.stack) or ((position.site,) if position.site else ())


def _comes_in_turns(block: ast.With, above: Site | None) -> bool:
    """Whether a block is of a context that lets one process in first: a framework's, or the script's own that waits."""
    if any(
        last_name(each.context_expr.func) in FIRST for each in block.items if isinstance(each.context_expr, ast.Call)
    ):
        return True
    functions = tree_of(above.file).of(ast.FunctionDef) if above is not None else []
    made = [each for each in functions if above is not None and each.name == above.function]
    return any(isinstance(node, ast.Yield) for each in made for node in ast.walk(each))


def _meets(script: Script, call: ast.Call) -> str:
    """Return how all ranks meet in a call; empty where they do not."""
    path = script.resolve(call.func) or ""
    if path in {DDP, FSDP}:
        return "compares and sends the parameters of all ranks"
    if path in COLLECTIVES - BARRIERS:
        return "is a collective"
    match call.func:
        case ast.Attribute(value=owner, attr=name):
            for paths, names in WRAP:
                if name in names and script.is_a(owner, *paths) and any(map(_is_model, call.args)):
                    return "wraps the model, for which it sends the parameters to all ranks"
            if any(name in names and script.is_a(owner, *paths) for paths, names in MEET):
                return "is a collective"
    return ""


def _is_model(given: ast.expr) -> bool:
    return A_MODEL.search(ast.unparse(given)) is not None
