"""Calls between the steps of a training, in its source and in what was seen."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    NO_PYTHON,
    Place,
    last_name,
)

if TYPE_CHECKING:
    from .sheets import Sheet

NEAR = 3  # lines
WRAPPERS = frozenset({"DDP", "DistributedDataParallel", "FSDP", "FullyShardedDataParallel", "fully_shard"})
REDUCERS = frozenset({"all_reduce", "all_reduce_coalesced", "reduce_scatter_tensor"})


def calls_in(step: Sheet, names: frozenset[str], about: str = "") -> list[Place]:
    """List the calls of these functions in the files that build the optimizer and step it; ``about`` stands near."""
    files = {each.site.file for each in (step.held, *step.ranks.values()) if each.site is not None}
    return calls_of(files, names, about)


def calls_of(files: set[str], names: frozenset[str], about: str = "") -> list[Place]:
    """List the calls of these functions in some files, as far as they can be read."""
    found = []
    for file in sorted(files):
        try:
            text = Path(file).read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (OSError, *NO_PYTHON):
            continue
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        lines = text.splitlines()
        found += [
            Place(file=file, line=each.lineno)
            for each in calls
            if last_name(each.func) in names
            and about in "\n".join(lines[max(each.lineno - 1 - NEAR, 0) : each.lineno + NEAR])
        ]
    return found
