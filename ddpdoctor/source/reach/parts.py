"""The parts of an expression that can differ between ranks."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.arguments import given as argument_at
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.vocabulary import DATA_PARALLEL, DDP, FSDP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddpdoctor.source.text.tree import Tree


CONVERTED = frozenset("to cuda cpu item detach clone float int half numpy tolist".split())
"""Methods that return what they are asked of, in another form or elsewhere."""
WRAPPED = frozenset((DDP, DATA_PARALLEL, FSDP, "torch.nn.SyncBatchNorm.convert_sync_batchnorm"))
"""What returns the model that it is given, for several GPUs or ranks."""


def unconverted(tree: Tree, node: ast.expr) -> ast.expr:
    """Return what an expression is made of that only has it in another form: ``best`` of ``best.to(gpu)``.

    A model that is wrapped is alike on all ranks, whatever GPU the wrapper is told.
    """
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in CONVERTED:
            node = node.func.value
        elif resolve(tree, node.func) in WRAPPED and (model := argument_at(node, 0, "module")) is not None:
            node = model
        elif node.args and resolve(tree, node.func) == "torch.load":
            node = node.args[0]  # what a file holds is the same wherever it is loaded to
        else:
            break
    return node


def parts(root: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in an expression, but for what is the same on all ranks.

    That is the class that it asks for, and what a count is divided by: ``step % options["logger"]["every"]``.
    """
    yield root
    match root:
        case ast.BinOp(op=ast.Mod(), left=counted) if not isinstance(counted, (ast.Constant, ast.JoinedStr)):
            inner: Iterable[ast.AST] = (counted,)
        case _:
            inner = () if _is_class(root) or _is_coarse_time(root) else ast.iter_child_nodes(root)
    for child in inner:
        yield from parts(child)


FINE = re.compile(r"%[-_0^#]?[SfscXTr+]")
"""What a format of ``strftime`` has that tells seconds, which the ranks do not share."""


def _is_coarse_time(node: ast.AST) -> bool:
    """Whether it is a time told to the day, the hour or the minute, which ranks that start together have alike."""
    match node:
        case ast.Attribute(attr="tm_year" | "tm_mon" | "tm_mday" | "tm_yday" | "tm_hour" | "tm_min"):
            return True
        case ast.Attribute(value=ast.Call(func=ast.Attribute(attr="now" | "today")), attr=part):
            return part in {"year", "month", "day", "hour", "minute"}
        case ast.Call(func=ast.Attribute(attr="strftime"), args=args):
            texts = [each.value for each in args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            return any("%" in each and FINE.search(each) is None for each in texts)
    return False


def _is_class(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="__class__") | ast.Call(func=ast.Name(id="type"), args=[_]):
            return True
    return False
