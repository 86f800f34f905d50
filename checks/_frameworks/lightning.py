"""Lightning's Trainer and modules, as a source has them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import is_open, keyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.check import Script, Tree

HOMES = ("lightning", "lightning.pytorch", "pytorch_lightning")
TRAINERS = tuple(f"{home}.Trainer" for home in HOMES)
FROM_OPTIONS = tuple(f"{each}.from_argparse_args" for each in TRAINERS)
"""How older versions make a Trainer of the options of the command line."""
MODULES = {f"{home}.LightningModule" for home in HOMES}
RANKS = ("ddp", "fsdp", "deepspeed")
DEVICES = ("devices", "gpus")
SAMPLER = ("use_distributed_sampler", "replace_sampler_ddp")
"""The option that has the Trainer put samplers in, of Lightning 2 and of older ones."""


def has_ranks(tree: Tree, call: ast.Call) -> bool:
    """Whether a Trainer is certain to train in several processes where there are several GPUs."""
    if is_open(call) or any(_number(keyword(call, name)) == 1 for name in DEVICES):
        return False
    given = [keyword(call, name) for name in ("strategy", "accelerator", "distributed_backend")]
    words = [
        each.value
        for option in given
        for each in ast.walk(_by_default(tree, option) or call.func)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    if any(word.startswith(RANKS) for word in words):
        return True
    return any((_number(keyword(call, name)) or 0) > 1 for name in DEVICES) and not words.count("dp")


def _by_default(tree: Tree, given: ast.expr | None) -> ast.expr | None:
    """Return what is given: of an option of the command line, what it is where nobody says more."""
    if not isinstance(given, ast.Attribute) or not isinstance(given.value, ast.Name):
        return given
    flag = f"--{given.attr}"
    for node in tree.of(ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=[ast.Constant(value=name)]) if name == flag:
                return keyword(node, "default")
    return given


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
