"""Lightning's Trainer and modules, as a source has them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import is_open, keyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.check import Script

HOMES = ("lightning", "lightning.pytorch", "pytorch_lightning")
TRAINERS = tuple(f"{home}.Trainer" for home in HOMES)
FROM_OPTIONS = tuple(f"{each}.from_argparse_args" for each in TRAINERS)
"""How older versions make a Trainer of the options of the command line."""
MODULES = {f"{home}.LightningModule" for home in HOMES}
RANKS = ("ddp", "fsdp", "deepspeed")
DEVICES = ("devices", "gpus")
SAMPLER = ("use_distributed_sampler", "replace_sampler_ddp")
"""The option that has the Trainer put samplers in, of Lightning 2 and of older ones."""


def has_ranks(call: ast.Call) -> bool:
    """Whether a Trainer is certain to train in several processes where there are several GPUs."""
    if is_open(call) or any(_number(keyword(call, name)) == 1 for name in DEVICES):
        return False
    words = [
        each.value
        for name in ("strategy", "accelerator", "distributed_backend")
        for each in ast.walk(keyword(call, name) or call.func)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    if any(word.startswith(RANKS) for word in words):
        return True
    return any((_number(keyword(call, name)) or 0) > 1 for name in DEVICES) and not words.count("dp")


def _number(given: ast.expr | None) -> int | None:
    """Return how many devices an option names; None where that is not certain."""
    match given:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.List(elts=several):
            return len(several)
    return None


def modules(script: Script) -> Iterator[ast.ClassDef]:
    """Yield the LightningModules of the file."""
    for node in script.nodes(ast.ClassDef):
        if any(script.resolve(base) in MODULES for base in node.bases):
            yield node
