"""Fabric refuses a method of the model besides forward, which nobody has marked.

## What happens

What `fabric.setup(model)` returns passes a call on to the wrapper of the strategy (DDP, FSDP) in `forward` alone. A
method of the model that computes with submodules (`model.loss(x)`, `model.training_step(batch)`) would go past it,
and Fabric ends the program: "You are calling the method `Net.loss()` from outside the model". It does so in evaluation
too, and with one process where the strategy has a wrapper.

## How to be sure

The error names the method; the line of yours below it calls it on what `fabric.setup` has returned.

## How to mend it

Mark it, right after `setup`: calls of it then go through the wrapper.

    model, optimizer = fabric.setup(model, optimizer)
    model.mark_forward_method("loss")

`mark_forward_method` is there since Lightning 2.3. Before it, let `forward` compute it.

## Versions and sources

Seen with lightning 2.6 and torch 2.13. Source: lightning/fabric/wrappers.py, `_wrap_method_with_module_call_tracker`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1586", Severity.ERROR)


@log_pattern(
    r"RuntimeError: You are calling the method `(?P<kind>\w+)\.(?P<method>\w+)\(\)` from outside the model\."
    r"(?P<rest>[^\n]{0,300})"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Return which method it is, and how this version of Fabric lets it pass."""
    kind, method = match["kind"], match["method"]
    marks = Fix(
        f"mark {method} as a method that goes through the wrapper",
        diff=f' model, optimizer = fabric.setup(model, optimizer)\n+model.mark_forward_method("{method}")',
    )
    through = Fix(
        f"let forward call {method}, or mark it, which Lightning 2.3 and later can",
        diff=f" class {kind}(nn.Module):\n+    def forward(self, *args):\n+        return self.{method}(*args)\n"
        f"-loss = model.{method}(batch)\n+loss = model(batch)",
    )
    yield Finding(
        f"{kind}.{method}() is called on what fabric.setup has returned, past the wrapper: Fabric refuses it",
        (record.proof(match, "forward, or a method that is marked"),),
        marks if "mark_forward_method" in match["rest"] else through,
        record.place,
    )
