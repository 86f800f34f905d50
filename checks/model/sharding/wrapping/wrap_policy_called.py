"""A policy of FSDP is called where it is to be handed over, which is a TypeError.

## What happens

`transformer_auto_wrap_policy`, `size_based_auto_wrap_policy` and `lambda_auto_wrap_policy` are the policies themselves:
FSDP calls them for each submodule. Called with their settings alone, they miss `module`, `recurse` and
`nonwrapped_numel`: "missing 3 required positional arguments", or 2 where they are given a module, on every rank, before
the model is wrapped.

## How to be sure

The traceback ends in that line. Reported where the call does not say whether to `recurse`, by name or place.

## How to mend it

`functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})`; or `ModuleWrapPolicy({Block})`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/distributed/fsdp/wrap.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, is_open, keyword, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP557", Severity.ERROR)
POLICIES = tuple(
    f"torch.distributed.fsdp.wrap.{name}_auto_wrap_policy" for name in ("transformer", "size_based", "lambda")
)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a call of a policy with settings alone, or with a module as well."""
    for call in script.calls(*POLICIES):
        if len(call.args) > 1 or not call.keywords or is_open(call) or keyword(call, "recurse") is not None:
            continue
        words = [word for word in call.keywords if word.arg != "module"]
        settings = ", ".join(f"{word.arg}={script.code(word.value)}" for word in words)
        right = f"functools.partial({script.code(call.func)}, {settings})"
        edits = (script.replaced(call, right),) if "functools" in script.imported and _has_module(script) else ()
        yield Finding(
            f"{script.code(call.func)} is called here, and is to be called by FSDP, which tells it what to decide on",
            (script.seen(call, right),),
            Fix("hand its settings over with functools.partial", edits=edits, diff="" if edits else f"+{right}"),
            script.place(call),
        )


def _has_module(script: Script) -> bool:
    """Whether ``functools`` itself is imported, and not a name of it alone."""
    return any(each.path == "functools" for each in script.tree.bindings.get(script.module, {}).get("functools", ()))
