"""The Trainer's loss is divided by the items of all ranks, and DDP divides its gradients by the ranks once more.

## What happens

The transformers Trainer hands `compute_loss` the number of items (tokens, labels) of the whole step as
`num_items_in_batch`: with `average_tokens_across_devices`, which is on by default in newer versions, those of all
ranks. A loss that is summed and divided by it makes each rank's gradients its share of the mean. DDP then divides the
sum of these shares by the number of ranks N, so that the training goes on with gradients N times too small; what is
logged as the loss is an N-th, too. The Trainer's own `compute_loss` multiplies by the number of ranks for that.

## How to be sure

Compare the logged loss of one rank and of two: it halves. In a running training (`ddpdoctor run`) the graph of two
losses ends with a division by `num_items_in_batch`, no factor of the graph is the number of ranks, and `compute_loss`
is the script's own.

## How to mend it

Multiply by the number of ranks, as the Trainer does:

    loss = criterion(logits, labels, reduction="sum") / num_items_in_batch
    if self.args.average_tokens_across_devices:
        loss = loss * self.accelerator.num_processes

or leave compute_loss to the Trainer, and give it `compute_loss_func`: there it multiplies by itself.

## Versions and sources

Source: transformers/trainer.py, `compute_loss` and `_get_num_items_in_batch`. Seen with transformers 5.23, accelerate
1.15 and torch 2.13 CPU; holds from transformers 4.48 on. Needs torch 2.10 or later to be seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, LossOverAllItems, Place, Severity, Site, tree_of, watch

AILMENT = Ailment("DDP1536", Severity.WARNING)
ITEMS = "num_items"


@watch(LossOverAllItems)
def while_training(event: LossOverAllItems) -> Iterator[Finding]:
    """Name the line of the script's own compute_loss that divides."""
    if event.rank != 0 or event.site is None:
        return
    line, before, after = _division(event.site) or (event.site.line, *_multiplied("loss / num_items_in_batch"))
    where = Place(file=event.site.file, line=line)
    yield Finding(
        f"the loss is divided by num_items_in_batch, the items of all {event.ranks} ranks, and DDP divides its "
        f"gradients by {event.ranks} once more",
        (
            Evidence(before, after, str(where)),
            Evidence("average_tokens_across_devices is on", "", "TrainingArguments"),
        ),
        Fix("multiply by the number of ranks, as the Trainer's own compute_loss does", diff=f"-{before}\n+{after}"),
        where,
    )


def _multiplied(code: str) -> tuple[str, str]:
    return code, f"{code} * self.accelerator.num_processes"


def _division(computed: Site) -> tuple[int, str, str] | None:
    """Return the last quotient of a function by the items of a batch: its line, its code, and how that is right.

    A decorated function begins at its decorator.
    """
    found: dict[int, tuple[str, str]] = {}
    for function in tree_of(computed.file).of(ast.FunctionDef):
        first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
        if function.name != computed.function or first != computed.line:
            continue
        for node in ast.walk(function):
            if not isinstance(node, (ast.expr, ast.stmt)):
                continue
            match node:
                case (
                    ast.BinOp(op=ast.Div(), right=items)
                    | ast.Call(func=ast.Attribute(attr="div" | "true_divide"), args=[*_, items])
                ) if ITEMS in ast.unparse(items):
                    found[node.lineno] = _multiplied(ast.unparse(node))
                case ast.AugAssign(op=ast.Div(), target=loss, value=items) if ITEMS in ast.unparse(items):
                    name = ast.unparse(loss)
                    found[node.lineno] = ast.unparse(node), _multiplied(f"{name} = {name} / {ast.unparse(items)}")[1]
    return (max(found), *found[max(found)]) if found else None
