"""DistributedDataParallel is given device_ids, and the model is on the CPU.

## What happens

`device_ids=[local_rank]` says on which GPU the model is. One whose parameters are on the CPU was not moved there
before it was wrapped, or there is no GPU and the script passes `device_ids` all the same: the constructor refuses it on
every rank.

## How to be sure

The message ends with the devices of the parameters, here `{device(type='cpu')}`.

## How to mend it

With a GPU, move the model first: `DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])`. Without one,
leave `device_ids` out: `device_ids=[local_rank] if torch.cuda.is_available() else None`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's torch/nn/parallel/distributed.py, the constructor.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, Ailment, Finding, Fix, Record, Severity, given, keyword, lint, log_pattern

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP244", Severity.ERROR)


@log_pattern(
    r"device_ids and output_device arguments only work with [^\n]{0,80}CPU modules, but got device_ids"
    r" (\[[^\]\n]{0,200}\]), output_device [^\n]{0,80}module parameters \{(?:device\(type=')?cpu(?:'\))?\}"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """All parameters are on the CPU."""
    yield Finding(
        f"device_ids={match[1]} is passed for a model that is on the CPU",
        (record.proof(match, "device_ids=None, or a model that was moved to its GPU"),),
        Fix(
            "move the model to its GPU before it is wrapped; without a GPU pass no device_ids",
            diff="-model = DistributedDataParallel(model, device_ids=[local_rank])\n"
            "+on_gpu = torch.cuda.is_available()\n"
            '+model = model.to(f"cuda:{local_rank}" if on_gpu else "cpu")\n'
            "+model = DistributedDataParallel(model, device_ids=[local_rank] if on_gpu else None)",
        ),
        record.place,
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a model that is wrapped with device_ids as it was built, of classes that choose no device themselves."""
    if script.frameworks or re.search(r"set_default_device|set_default_tensor_type", script.text):
        return
    for call in script.calls(DDP):
        told, model = keyword(call, "device_ids"), given(call, 0, "module")
        devices = script.held(told) if isinstance(told, ast.Name) else told
        if not isinstance(devices, ast.List) or not devices.elts or not isinstance(model, ast.Name):
            continue
        built = script.held(model)
        if isinstance(built, ast.Call) and _stays_on_cpu(script, built) and not _is_handed_on(script, model, call):
            name = script.code(model)
            yield Finding(
                f"{name} is on the CPU, as it was built, and device_ids={script.code(devices)} is passed: a ValueError",
                (script.seen(call, f"{name} moved to its GPU before"), script.seen(built)),
                Fix(
                    "move the model to its GPU before it is wrapped",
                    edits=(script.replaced(model, f"{name}.to({script.code(devices.elts[0])})"),),
                ),
                script.place(call),
            )


HOLDERS = re.compile(r"Sequential|List|Dict|Encoder$|Decoder$|Parallel")
"""Modules of torch that are made of others, which can be on a GPU."""


def _stays_on_cpu(script: Script, built: ast.Call) -> bool:
    """Whether what is built is a module whose class, or function, and all beside it name no device."""
    path = script.resolve(built.func) or ""
    if any(isinstance(each, (ast.With, ast.AsyncWith)) for each in script.tree.above(built)) or keyword(
        built, "device"
    ):
        return False
    if path.startswith("torchvision.models."):
        return True
    if re.fullmatch(r"torch\.nn\.[A-Z]\w*", path):
        return not HOLDERS.search(path) or all(
            isinstance(each, ast.Call) and _stays_on_cpu(script, each) for each in built.args
        )
    if (own := script.names_class(built.func)) is not None:
        bases = [script.resolve(each) for each in own.bases]
        return bases == ["torch.nn.Module"] and not _names_a_device(own)
    found = script.defined(built.func)
    return found is not None and found[0] is not script.tree and not _names_a_device(found[0].module)


def _names_a_device(node: ast.AST) -> bool:
    words = (
        getattr(each, "attr", None) or getattr(each, "id", None) or getattr(each, "arg", "") for each in ast.walk(node)
    )
    return any(isinstance(each, str) and re.search(r"^(?:to|cuda)$|device|gpu", each) for each in words)


def _is_handed_on(script: Script, model: ast.Name, wrap: ast.Call) -> bool:
    """Whether a model is moved, or is handed to what can move it, before it is wrapped."""
    for node in script.tree.read.get(model.id, ()):
        parent = script.tree.parents[node]
        if node is model or node.lineno > wrap.lineno:
            continue
        if not isinstance(parent, ast.Attribute) or parent.attr not in {
            "parameters",
            "train",
            "eval",
            "named_parameters",
        }:
            return True
    return False
