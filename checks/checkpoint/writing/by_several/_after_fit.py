"""What each rank of Lightning writes behind ``trainer.fit``, where the script goes on in every process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import given, keyword

from ...._frameworks.lightning import TRAINERS, has_ranks

if TYPE_CHECKING:
    from ddpdoctor.check import Script

OWN_SCRIPTS = re.compile(r"(?:ddp|fsdp|deepspeed)(?!\w*(?:spawn|fork|notebook))\w*")
"""Strategies whose ranks run the script each for itself, and go on behind ``fit``."""
MODEL = re.compile(r"model|module|net\b", re.IGNORECASE)


def written_after_fit(script: Script) -> Iterator[tuple[ast.Call, ast.expr, ast.Call, str]]:
    """Yield the calls that write a model on all ranks, with path, Trainer, and the test that one rank passes."""
    writes = [*_written(script)]
    for call in script.nodes(ast.Call) if writes else ():
        match call.func:
            case ast.Attribute(value=owner, attr="fit"):
                made = script.made_by(owner, *TRAINERS)
            case _:
                continue
        if made is None or not has_ranks(script.tree, made) or not _goes_on(script, made):
            continue
        for write, path in writes:
            behind = script.function(write) is script.function(call) and write.lineno > call.lineno
            shared = script.guards(call)
            tests = [each for each in script.guards(write) if each not in shared]
            if behind and not any(each.is_rankish(script.tree) for each in (*shared, *tests)):
                named = isinstance(owner, (ast.Name, ast.Attribute))
                yield write, path, made, f"{script.code(owner)}.is_global_zero" if named else "dist.get_rank() == 0"


def _goes_on(script: Script, trainer: ast.Call) -> bool:
    """Whether the ranks of a Trainer run the script itself: not forked for ``fit`` alone."""
    for name in ("strategy", "accelerator"):
        held = keyword(trainer, name)
        match script.value(held) if held is not None else None:
            case ast.Constant(value=str(word)) if OWN_SCRIPTS.fullmatch(word):
                return True
    return False


def _written(script: Script) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls that write a model, each with its path."""
    for call in script.calls("torch.save"):
        if (path := given(call, 1, "f")) is not None:
            yield call, path
    own = any(each.name == "save_pretrained" for each in script.nodes(ast.FunctionDef))
    for call in script.nodes(ast.Call) if not own else ():
        match call.func:
            case ast.Attribute(value=owner, attr="save_pretrained") if MODEL.search(ast.unparse(owner)):
                path = given(call, 0, "save_directory")
                if path is not None and keyword(call, "is_main_process") is None:
                    yield call, path
