"""The signs of a gradient that comes twice, and of activation checkpointing; where the source asks for that."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpdoctor.check import Fix, Record, keyword, resolve, tree_of

from ..._scripts.own_files import own_files

MESSAGE = r"Expected to mark a variable ready only once"
CHECKPOINTED = (
    r"utils[/\\]checkpoint\.py|CheckpointFunction|use_reentrant parameter should be passed explicitly"
    r"|pass in use_reentrant=True or use_reentrant=False|incompatible with gradient checkpointing"
    r"|gradient_checkpointing['\"]?\s*[=:]\s*True"
)
CHECKPOINT = "torch.utils.checkpoint.checkpoint"


@dataclass(frozen=True, slots=True)
class Call:
    """A line that has a part of the forward computed again, by reentrant checkpointing."""

    file: str
    line: int
    code: str
    mended_code: str

    def mended(self) -> Fix:
        """Return how it is told not to be reentrant."""
        return Fix(
            "use the checkpointing that is not reentrant; where all steps use the same parameters, static_graph=True "
            "helps too",
            diff=f"-{self.code}\n+{self.mended_code}",
        )


def reentrant_call(record: Record) -> Call | None:
    """Return the one call of torch's checkpoint in the user's files that is reentrant; None where there are several."""
    files = dict.fromkeys(file for each in record.frames if each.is_users for file in own_files(each.file))
    found = [
        (file, call)
        for file in files
        for call in tree_of(file).of(ast.Call)
        if resolve(tree_of(file), call.func) == CHECKPOINT and _is_reentrant(call)
    ]
    if len(found) != 1:
        return None
    file, call = found[0]
    words = [each for each in call.keywords if each.arg != "use_reentrant"]
    off = ast.keyword("use_reentrant", ast.Constant(value=False))
    mended = ast.Call(func=call.func, args=call.args, keywords=[*words, off])
    return Call(file, call.lineno, *(" ".join(ast.unparse(each).split()) for each in (call, mended)))


def _is_reentrant(call: ast.Call) -> bool:
    asked = keyword(call, "use_reentrant")
    return isinstance(asked, ast.Constant) and asked.value is True
