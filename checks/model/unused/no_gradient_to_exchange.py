"""A parameter without a gradient is exchanged by hand.

## What happens

A training that averages its gradients itself goes through `model.parameters()` and hands each `grad` to a collective.
A parameter that the loss does not reach (a head that this step does not use, a frozen part, a layer that forward leaves
out) has no gradient: `grad` is None, and the loop ends in "'NoneType' object has no attribute 'data'" or "Expected
parameter `tensor` of type torch.Tensor". Where the batch of one rank alone leaves the part out, that rank ends, and the
others wait for it.

## How to be sure

The line that failed hands a gradient to a collective, or divides it by the number of ranks.

## How to mend it

Put zeros where there is no gradient, so that all ranks exchange the same list. Leave out what is frozen: it is frozen
on all ranks. Skipping each None (`if p.grad is not None`) is right only where all ranks leave out the same parameters.
DDP does all of this, with `find_unused_parameters=True`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.Tensor.grad": this
attribute is None by default, and becomes a tensor the first time a call to backward computes gradients for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1573", Severity.ERROR)
GRADIENT = re.compile(r"\b(\w+(?:\.\w+)*)\.grad\b")
COLLECTIVE = re.compile(
    r"\b(?:all_?reduce|reduce|broadcast|all_gather\w*|reduce_scatter\w*|average_tensors)_?\(", re.IGNORECASE
)
DIVIDED = re.compile(
    r"(?:/=?|div_?\()\s*(?:\w+\.)*(?:\w*world_?size|get_world_size|size|n_?(?:procs|ranks|workers|gpus))\b",
    re.IGNORECASE,
)
EXCHANGES = re.compile(
    r"(?:average|sync|reduce|exchange|aggregate|share)\w*grad|grad\w*(?:average|sync|reduce|exchange)", re.IGNORECASE
)
ZEROS = Fix(
    "put zeros where there is no gradient, before the exchange; what is frozen is left out on all ranks",
    diff="+for name, p in model.named_parameters():\n"
    "+    if p.requires_grad and p.grad is None:\n"
    '+        print("no gradient:", name)\n'
    "+        p.grad = torch.zeros_like(p)\n"
    "-for p in model.parameters():\n"
    "+for p in (each for each in model.parameters() if each.requires_grad):\n"
    "     dist.all_reduce(p.grad)",
)


@log_pattern(
    r"AttributeError: 'NoneType' object has no attribute '(?:data|div_?|mul_?|view|flatten|reshape|contiguous|clone"
    r"|detach|cpu|cuda|to|device)'"
    r"|TypeError: (?:unsupported operand type\(s\) for /=?: 'NoneType' and 'int'"
    r"|expected Tensor as element \d+ in argument 0, but got NoneType"
    r"|Invalid function argument\. Expected parameter `tensor` of type torch\.Tensor\n\s*but got <class 'NoneType'>)",
    supersedes=("collective-on-number",),
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Ask what the line that failed does with a gradient."""
    gradient = GRADIENT.search(record.code)
    if gradient is None or not _is_exchanged(record):
        return
    yield Finding(
        f"{gradient[0]} is None: a parameter that the loss does not reach has no gradient to exchange",
        (record.proof(match, "a gradient, or zeros"),),
        ZEROS,
        record.place,
    )


def _is_exchanged(record: Record) -> bool:
    """Whether the line hands it to a collective, divides it by the ranks, or is part of a function named so."""
    frame = record.users
    named = frame is not None and EXCHANGES.search(frame.function) is not None
    return named or any(each.search(record.code) for each in (COLLECTIVE, DIVIDED))
