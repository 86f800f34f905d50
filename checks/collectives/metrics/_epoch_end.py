"""What a module of Lightning prints at the end of an evaluation, from the batches of one process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Finding, Fix, dotted

from ..._frameworks.lightning import modules
from ._monitored import REDUCES, trained_in_ranks

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

ENDS = {f"{on}{stage}_epoch_end": stage for on in ("", "on_") for stage in ("validation", "test")}
PRINTS = {"print", "pprint", "pprint.pprint", "logging.info", "logger.info", "log.info"}
MEASURES = re.compile(r"loss|acc|f1|precision|recall|score|auc|bleu|rouge|wer|iou|psnr|ssim|metric", re.IGNORECASE)
"""Words of what is told of a whole evaluation, and of no few samples that are shown."""
OWN_SHARES = re.compile(r"IterableDataset|batch_sampler|webdataset|wds\.|rank\b|world_size|is_global_zero|torchmetrics")
"""What says that a module knows of its ranks, or that its data is not shared out by Lightning."""
SYNCED = (
    "+self.val_acc = torchmetrics.Accuracy(task='multiclass', num_classes=classes)   # in __init__\n"
    "+self.val_acc.update(predictions, targets)   # in validation_step\n"
    "+self.log('val_acc', self.val_acc)"
)


def printed_at_the_end(script: Script, project: Around) -> Iterator[Finding]:
    """Find what the end of an evaluation prints, computed from what the steps of one process have left."""
    owners = [each for each in modules(script) if not REDUCES.search(ast.unparse(each))]
    if not owners or OWN_SHARES.search(script.text) or not trained_in_ranks(script, project):
        return
    for owner in owners:
        methods = {each.name: each for each in owner.body if isinstance(each, ast.FunctionDef)}
        for name, stage in ENDS.items():
            step = methods.get(f"{stage}_step")
            kept = _kept(methods[name], step) if name in methods and step is not None else ""
            told = _told(methods[name], kept) if kept else None
            if told is not None:
                yield Finding(
                    f"{name} computes from {kept}, which holds the batches of one process, and prints that as of all",
                    (script.seen(told, "computed from the batches of all processes"),),
                    Fix("let a metric of torchmetrics count, which puts the processes' parts together", diff=SYNCED),
                    script.place(told),
                )


def _kept(end: ast.FunctionDef, step: ast.FunctionDef) -> str:
    """Return what holds the answers of the steps: the parameter of older versions, or an own list that they fill."""
    names = [each.arg for each in end.args.args]
    if not end.name.startswith("on_"):
        return names[1] if len(names) == 2 else ""  # noqa: PLR2004 - self, and the answers
    for node in ast.walk(step):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="self")) as held, attr="append")):
                return ast.unparse(held)
    return ""


def _told(end: ast.FunctionDef, kept: str) -> ast.Call | None:
    """Return the call that prints a measure of what was computed from the answers of all steps."""
    names = {kept: ""}  # with the code that gave each its value
    for node in sorted((each for each in ast.walk(end) if isinstance(each, ast.stmt)), key=lambda each: each.lineno):
        match node:
            case ast.Assign(targets=targets, value=value) if _reads(value, names):
                filled = [each.id for one in targets for each in ast.walk(one) if isinstance(each, ast.Name)]
                names |= dict.fromkeys(filled, ast.unparse(node))
            case ast.AugAssign(target=ast.Name(id=name), value=value) if _reads(value, names):
                names[name] = ast.unparse(node)
            case ast.For(target=target, iter=given) if _reads(given, names):
                names |= dict.fromkeys((each.id for each in ast.walk(target) if isinstance(each, ast.Name)), "")
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend"), args=[value])
            ) if _reads(value, names):
                names[name] = ast.unparse(node)
            case ast.Expr(value=ast.Call() as call) if dotted(call.func) in PRINTS:
                read = {name for each in call.args for name in _reads(each, names)}
                text = " ".join((ast.unparse(call), *(names[each] for each in read)))
                if read and MEASURES.search(text):
                    return call
    return None


def _reads(value: ast.expr, names: dict[str, str]) -> set[str]:
    """Return the names of all answers that an expression is computed from; not of how many, or a part of them."""
    match value:
        case ast.Call(func=ast.Name(id="len")):
            return set()
        case ast.Subscript(value=ast.Name() | ast.Attribute() as whole, slice=ast.Constant(value=int()) | ast.Slice()):
            return set() if dotted(whole) in names else _reads(whole, names)
        case ast.Name() | ast.Attribute() if dotted(value) in names:
            return {ast.unparse(value)}
    parts = [each.value if isinstance(each, ast.keyword) else each for each in ast.iter_child_nodes(value)]
    inner = [each.iter if isinstance(each, ast.comprehension) else each for each in parts]
    return {name for each in inner if isinstance(each, ast.expr) for name in _reads(each, names)}
