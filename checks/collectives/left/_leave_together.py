"""How ranks leave a loop together, or go through it as often."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import Fix

if TYPE_CHECKING:
    from ddpdoctor.check import Exit, Framework

    from ..hangs.source._exits import LeftBy

ERROR = Fix("mend the error that the handler hides, and let it end the rank: the launcher then ends the others")
SKIP_TOGETHER = Fix(
    "let all ranks skip the step together: decide once, and tell all",
    diff="+skip = torch.tensor([int(skip_this)])\n+dist.all_reduce(skip, op=dist.ReduceOp.MAX)\n"
    "-if skip_this:\n+if skip.item():\n     continue",
)
AS_OFTEN = Fix(
    "let all ranks go through the loop as often, and make its collective for each item: neither their number nor a "
    "test around the call comes from what one rank has",
    diff="+passes = torch.tensor([len(items)])\n+dist.all_reduce(passes, op=dist.ReduceOp.MIN)\n"
    "-for item in items:\n+for item in itertools.islice(items, int(passes)):",
)


def mended(left: LeftBy, framework: Framework | None) -> Fix:
    """Return how the ranks leave the loop together; where its items were used up, how they go through it as often."""
    if not left.loop.exits:
        return AS_OFTEN
    only = left.loop.only
    if only is not None and only.around:
        return replace(ERROR, diff=f"-{only.kind}:\n-    ...   # line {only.line}\n+{only.kind}:\n+    raise")
    return SKIP_TOGETHER if all(each.skips for each in left.loop.exits) else together(framework, only)


def together(framework: Framework | None, only: Exit | None = None) -> Fix:
    """Return how the ranks decide together, in the words of the framework that wraps the model, and of the script."""
    test, way, asked = "stop_here", "break", "stop_here"
    if only is not None and only.kind in {"break", "return"} and only.test.startswith("if "):
        test, way = only.test.removeprefix("if "), only.kind
        asked = f"bool({test})"
    agree = framework.agree if framework is not None and framework.agree else ""
    told = f"+stop = torch.tensor([int({asked})])\n+dist.all_reduce(stop, op=dist.ReduceOp.MAX)"
    return Fix(
        "let all ranks leave the loop together: decide once, and tell all",
        diff=f"{agree.format(test=test)}\n-if {test}:\n+if flag > 0:\n     {way}"
        if agree
        else f"{told}\n-if {test}:\n+if stop.item():\n     {way}",
    )
