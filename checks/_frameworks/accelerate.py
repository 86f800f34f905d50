"""Scripts of Accelerate, as their source has them: what they prepare, and whether several processes run them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import ACCELERATOR

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree

OF_PROCESSES = re.compile(
    r"\b(?:num_processes|process_index|is_(?:local_)?main_process|wait_for_everyone|gather\w*|unwrap_model"
    r"|(?:local_)?main_process_first|on_(?:local_)?main_process|split_batches|DistributedDataParallelKwargs)\b"
    r"|\baccel\w*\.print\("
)
"""What a script of Accelerate says that is meant for several processes."""
SEVERAL = r"(?:--multi[-_]gpu\b|--num[-_]processes[= ]+(?:[2-9]|[1-9]\d)\b)"
GOES_ON = r"(?:[^\n\\]|\\\n|\\.){0,400}?"
"""What stands between the words of one command."""
CONFIGURED = r"\bnum_processes: *(?:[2-9]|[1-9]\d)\b"


def is_of_several_processes(script: Script, project: Around) -> bool:
    """Whether the file has an Accelerator, and is meant for several processes: by its own words, or its launch's."""
    if not script.calls(ACCELERATOR) and not _is_handed_one(script):
        return False
    if OF_PROCESSES.search(script.text):
        return True
    return any(True for _ in prepares(script, script.tree)) and is_launched_with_several(script, project)


def _is_handed_one(script: Script) -> bool:
    """Whether a function of the file says that it is handed an Accelerator: ``accelerator: Accelerator``."""
    if "accelerate" not in script.imported:
        return False
    said = [each.annotation for each in script.nodes(ast.arg) if each.annotation is not None]
    return any(script.resolve(each) == ACCELERATOR for each in said)


def is_launched_with_several(script: Script, project: Around) -> bool:
    """Whether a launch script, or a README, starts several processes of the file."""
    name = rf"\b{re.escape(script.name)}\b"
    here = rf"{SEVERAL}{GOES_ON}{name}"
    if project.in_launches(here) or any(re.search(here, each) for each in project.launches_beside()):
        return True
    return project.in_launches(CONFIGURED) and project.in_launches(rf"\baccelerate launch\b{GOES_ON}{name}")


def prepares(script: Script, tree: Tree) -> Iterator[ast.Call]:
    """Yield the calls of ``prepare`` of an Accelerator in a file of the project."""
    for call in tree.of(ast.Call):
        match call.func:
            case ast.Attribute(attr="prepare", value=owner):
                made = script.value_in(tree, owner)
                is_made = isinstance(made, ast.Call) and script.names_in(tree, made.func) == ACCELERATOR
                if is_made or re.search("accel", ast.unparse(owner), re.IGNORECASE):
                    yield call


def prepared_loaders(script: Script, tree: Tree) -> Iterator[tuple[ast.Call, list[ast.expr]]]:
    """Yield the calls of ``prepare`` that a DataLoader is given, each with where the variable is read that takes it."""
    for call in prepares(script, tree):
        loaders = {each for each in call.args if _is_loader(script, tree, each)}
        if loaders:  # where the others are read, which is slow to find, nobody asks
            yield from ((call, reads) for handed, reads in script.given_back(tree, call) if handed in loaders)


def _is_loader(script: Script, tree: Tree, handed: ast.expr) -> bool:
    """Whether what is given to ``prepare`` was a DataLoader until then, on some way."""
    bound = tree.lookup(handed.id, handed) if isinstance(handed, ast.Name) else []
    made = [each.value for each in bound if each.value is not None] if bound else [handed]
    return any(isinstance(each, ast.Call) and script.names_in(tree, each.func) == LOADER for each in made)


LOADER = "torch.utils.data.DataLoader"
