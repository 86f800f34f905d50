"""torch.compile cannot split this model at DDP's buckets.

## What happens

To overlap communication, torch.compile cuts the graph of a DDP model where its buckets end (DDPOptimizer). Activation
checkpointing, `torch.cond`, flex attention and other higher order operators cannot be cut: "DDPOptimizer backend: Found
a higher order op in the graph. This is not supported". Compiled autograd does not work with DDP's C++ reducer at all. A
piece can also be what the backend cannot compile, while the whole model compiles: the traceback then goes through
torch/_dynamo/backends/distributed.py.

## How to be sure

The message is compile's own and names the switch. The same model compiles without DDP: one process without DDP shows
nothing but that, so compare with `optimize_ddp = False` under DDP.

## How to mend it

Switch the cutting off, `torch._dynamo.config.optimize_ddp = False`, before the first step: the communication then
starts after the whole backward. Or compile the blocks inside of the model instead of the wrapped model. With compiled
autograd use `optimize_ddp = "python_reducer"`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/_dynamo/backends/distributed.py; torch's reducer.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP589", Severity.ERROR)
SPLITTER = re.compile(r"_dynamo[/\\]backends[/\\]distributed\.py$")


@log_pattern(
    r"BackendCompilerFailed: (?:backend='compile_fn' raised:\s*(?P<new>[^\n]{0,200})"
    r"|compile_fn raised (?P<old>[^\n]{1,200}))",
    plain=True,
)
def of_the_splitter(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """compile_fn is DDPOptimizer's own function, which cuts the graph at DDP's buckets and compiles the pieces."""
    said = (match["new"] or match["old"] or "").strip()
    if "higher order op" in record.text:
        return
    yield Finding(
        "torch.compile cannot compile the pieces that it cut at DDP's buckets" + (f": {said}" if said else ""),
        (record.proof(match, "torch._dynamo.config.optimize_ddp = False"),),
        Fix(
            "compile the model as a whole, or upgrade torch",
            diff="+torch._dynamo.config.optimize_ddp = False\n model = torch.compile(DDP(model))",
        ),
        record.place,
    )


@log_pattern(r"BackendCompilerFailed: backend='(?!compile_fn')\w+' raised:\s*(?P<said>[^\n]{0,200})", plain=True)
def of_a_piece(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The backend itself raised, below the function that compiles the pieces one by one."""
    if "higher order op" in record.text or not any(SPLITTER.search(each.file) for each in record.frames):
        return
    yield Finding(
        "torch.compile fails on one of the pieces that it cut at DDP's buckets"
        + (f": {match['said'].strip()}" if match["said"] else ""),
        (record.proof(match, "a model that compiles, cut or not"),),
        Fix(
            "compile the model as a whole, or upgrade torch",
            diff="+torch._dynamo.config.optimize_ddp = False\n model = torch.compile(DDP(model))",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the pieces alone do not compile: an error of torch in cutting the graph (DDPOptimizer)",
                "the model does not compile at all, with or without DDP",
            ),
            "# torch._dynamo.config.optimize_ddp = False: gone with it, then the cutting; still there, then the model",
        ),
    )


@log_pattern(
    r"torch\._dynamo\.exc\.\w+: [\s\S]{0,1500}?"
    r"(?P<code>from user code:\s{1,12}File \"[^\"\n]*torch/nn/parallel/distributed\.py\", "
    r"line \d+, in (?P<function>\w+))",
)
def of_the_wrapper(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Dynamo is at work on DDP's own code, which it leaves alone where it may break the graph."""
    yield Finding(
        f"torch.compile was given the wrapped model, and cannot trace DDP's own {match['function']}: with "
        "fullgraph=True it must",
        (record.proof(match, "code of the model"),),
        Fix(
            "compile the model before DDP wraps it, or let the graph break",
            diff="-model = torch.compile(DDP(model), fullgraph=True)\n"
            "+model = DDP(torch.compile(model, fullgraph=True))\n"
            "# with Accelerate: leave fullgraph out of TorchDynamoPlugin, or compile the model before prepare()",
        ),
        record.place,
    )


@log_pattern(
    r"DDPOptimizer backend: Found a higher order op in the graph"
    r"|(?P<auto>Compiled autograd is not compatible with C\+\+ DDP Reducer)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the switch that helps."""
    value = '"python_reducer"' if match["auto"] else "False"
    yield Finding(
        "compiled autograd does not work with DDP's C++ reducer"
        if match["auto"]
        else "torch.compile cannot cut this model at DDP's buckets: it holds a higher order operator",
        (record.proof(match, f"torch._dynamo.config.optimize_ddp = {value}"),),
        Fix(
            "set the switch before the first step",
            diff=f"+torch._dynamo.config.optimize_ddp = {value}\n model = torch.compile(DDP(model))",
        ),
        record.place,
    )
