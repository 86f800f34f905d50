"""How tensors of different sizes are padded, along the dimensions that differ."""

from __future__ import annotations

import ast
import re

from ddpdoctor.check import Fix, Site, calls_at, last_name

PADDED = frozenset({"gather", "gather_for_metrics"})
"""The methods of Accelerate for which it has a padding of its own."""
SHAPE = re.compile(r"\[([\d, ]*)\]")
PLAIN = (ast.Name, ast.Attribute)


def dimensions_that_differ(ours: str, theirs: str) -> tuple[int, ...]:
    """Return the dimensions in which two lists of shapes differ; empty where that cannot be told."""
    found: set[int] = set()
    pairs = list(zip(SHAPE.findall(ours), SHAPE.findall(theirs), strict=False))
    for one, other in pairs:
        sizes, others = one.split(","), other.split(",")
        if len(sizes) != len(others):
            return ()
        found |= {at for at, (a, b) in enumerate(zip(sizes, others, strict=True)) if a.strip() != b.strip()}
    return tuple(sorted(found))


def padded(dimensions: tuple[int, ...] = (0,)) -> Fix:
    """Return how a tensor of torch is padded."""
    lines = "".join(
        f"+size = torch.tensor([x.shape[{at}]], device=x.device)\n"
        "+dist.all_reduce(size, op=dist.ReduceOp.MAX)\n"
        f"+x = torch.nn.functional.pad(x, (0, 0) * (x.dim() - {at + 1}) + (0, int(size) - x.shape[{at}]))\n"
        for at in dimensions or (0,)
    )
    return Fix(
        "pad to the largest size before the collective, and cut afterwards", diff=f"{lines} dist.all_gather(out, x)"
    )


def padded_by_accelerate(site: Site, dimensions: tuple[int, ...]) -> Fix:
    """Return how what a line gathers is padded by Accelerate, in the words of the line where those can be."""
    if not dimensions:
        return PAD
    call = next((each for each in calls_at(site.file, site.line) if last_name(each.func) in PADDED and each.args), None)
    given, owner = "tensor", "accelerator"
    if call is not None and isinstance(call.func, ast.Attribute):
        owner = ast.unparse(call.func.value)
        first = call.args[0]
        parts = first.elts if isinstance(first, (ast.Tuple, ast.List)) else [first]
        if all(isinstance(each, PLAIN) for each in parts):
            given = ast.unparse(first)
    name = last_name(call.func) if call is not None else "gather"
    to = given[1:-1] if given[:1] in {"(", "["} else given
    lines = "".join(f"+{to} = {owner}.pad_across_processes({given}, dim={at})\n" for at in dimensions)
    return Fix("pad to the largest size before the call", diff=f"{lines} {owner}.{name}({given})")


FIX = padded()
PAD = Fix(
    "pad to the largest size before the call",
    diff="+tensor = accelerator.pad_across_processes(tensor, dim=0)   # that which differs\n"
    " tensor = accelerator.gather(tensor)",
)
