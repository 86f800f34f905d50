"""How a script gives its process group more time: its own call of init_process_group, and what that is to be."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.check import resolve, tree_of

if TYPE_CHECKING:
    from ddpdoctor.check import Site

MAKES = "torch.distributed.init_process_group"
IMPORT = "+from datetime import timedelta\n"
USUAL = (
    f"{IMPORT}-torch.distributed.init_process_group(backend)\n"
    "+torch.distributed.init_process_group(backend, timeout=timedelta(hours=3))"
)
"""Where the script's own call is not seen."""


def longer(sites: Iterable[Site | None], usual: str = USUAL) -> str:
    """Return the change to the one call in the files of these lines; ``usual`` where there is none, or several."""
    files = dict.fromkeys(each.file for each in sites if each is not None)
    calls = [(file, call) for file in files for call in _made_in(file)]
    if len(calls) != 1:
        return usual
    ((file, call),) = calls
    limit = next((each.value for each in call.keywords if each.arg == "timeout"), None)
    named = ast.unparse(limit.func) if isinstance(limit, ast.Call) else _timedelta(file)
    value = ast.parse(f"{named or 'timedelta'}(hours=3)", mode="eval").body
    others = [each for each in call.keywords if each.arg != "timeout"]
    changed = ast.Call(call.func, call.args, [*others, ast.keyword("timeout", value)])
    return f"{'' if named else IMPORT}-{ast.unparse(call)}   # {Path(file).name}:{call.lineno}\n+{ast.unparse(changed)}"


def _made_in(file: str) -> list[ast.Call]:
    tree = tree_of(file)
    return [each for each in tree.of(ast.Call) if resolve(tree, each.func) == MAKES and not _passes_on(each)]


def _passes_on(call: ast.Call) -> bool:
    """Whether what it is given is not seen: ``init_process_group(*args, **options)``."""
    return any(each.arg is None for each in call.keywords) or any(isinstance(each, ast.Starred) for each in call.args)


def _timedelta(file: str) -> str:
    """Return by what name a file knows timedelta; empty where it does not."""
    for each in tree_of(file).of(ast.ImportFrom):
        if each.module == "datetime":
            for name in each.names:
                if name.name == "timedelta":
                    return name.asname or name.name
    for plain in tree_of(file).of(ast.Import):
        for name in plain.names:
            if name.name == "datetime":
                return f"{name.asname or name.name}.timedelta"
    return ""
