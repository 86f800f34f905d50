"""What a local rank that was read from an option decides about, and what else it can have been read from."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, Evidence, Fact

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree

VARIABLE = r"(?<!\.)LOCAL_RANK(?![\"']\]\s*=[^=]|[\"']\s+(?:not\s+)?in\s)"
"""What reads the variable of the launchers; to set it, or ask for it, is no source."""


STORED = r"setattr\((?!self\b)|__dict__|vars\(|[\"']local_rank[\"']|LOCAL_RANK\s*=[^=]|\.update\([^)]"
"""What can put the variable into the option's place by other ways; else it is read for something else."""


OTHER_SOURCES = (
    r"SLURM_LOCALID|SLURM_PROCID|local-rank"
    r"|\bspawn\(|start_processes\(|import[^\n]*\bspawn\b|get_node_local_rank|HfArgumentParser"
)
"""What says that the local rank can come from elsewhere as well."""


DEVICES = {"torch.cuda.set_device", "torch.device", DDP}


MOVES = {"cuda", "to"}


OF_GROUP = r"(?m:^)[ \t]*local_rank[ \t]*=[ \t]*(?:\w+\.)*get_rank\(\)[ \t]*(?:#[^\n]*)?(?m:$)"
"""A variable of its own, which is given the rank in the group; the option of the same name stays what it was."""


CALCULATED = (
    rf"(?:(?m:^)(?!{OF_GROUP})[^\n]*?\blocal_rank\s*|"
    r"(?m:^)[ \t]*(?:[\w.]+\s*,\s*)*(?:\w+\.)*local_rank\s*,[^=\n()\[\]]*)"
    r"=(?!=)(?!\s*(?:(?:\w+\.)*local_rank\b|None\b|\{|-?\d+\s*[,)#\n]))"
    r"|deepspeed|accelerate"
)
"""What says that the local rank is made of something else, or that a launcher is used which passes the option."""


def is_made_elsewhere(project: Around) -> bool:
    """Whether the local rank can be made of something else than the option."""
    return project.says(CALCULATED) or (project.says(OF_GROUP) and project.says(r"\.local_rank\s*=(?!=)"))


def comes_from_elsewhere(project: Around) -> bool:
    """Whether the local rank can come from something else than the option."""
    if project.says(OTHER_SOURCES):
        return True
    return project.says(VARIABLE) and (is_made_elsewhere(project) or project.says(STORED))


def use_elsewhere(script: Script, project: Around, option: ast.Call) -> Evidence | None:
    """Return where the option decides about a device in what imports the file with the options, or is imported."""
    if is_made_elsewhere(project):
        return None
    others = [*project.trees(r"\.local_rank\b")] if _is_asked(script, project, option) else []
    for path, tree in [(script.path, script.tree), *others]:
        for call in tree.of(ast.Call):
            is_move = isinstance(call.func, ast.Attribute) and call.func.attr in MOVES
            if not is_move and script.names_in(tree, call.func) not in DEVICES:
                continue
            for node in ast.walk(call):
                value = script.value_in(tree, node) if isinstance(node, (ast.Name, ast.Attribute)) else None
                if value is not None and _is_given(tree, value) and not _is_of_another(script, tree, value):
                    return Evidence(" ".join(ast.unparse(call).split()), "", f"{path}:{call.lineno}")
    return None


def _is_asked(script: Script, project: Around, option: ast.Call) -> bool:
    """Whether a file of a training calls the function or class that the option stands in, if it stands in one."""
    above = [each for each in script.tree.above(option) if isinstance(each, (ast.FunctionDef, ast.ClassDef))]
    if not above or script.joins:
        return True
    name = above[-1].name
    joining = {path for path, _ in project.trees(r"local_rank|init_process_group|init_dist|DistributedDataParallel")}
    takers = [(path, tree) for path, tree in project.trees(rf"\b{name}\b") if path in joining]
    return any(name in tree.read or name in tree.members for _, tree in takers)


def _is_of_another(script: Script, tree: Tree, node: ast.expr) -> bool:
    """Whether an option is of what a function of the project makes without the command line: of a file, say."""
    made = script.value_in(tree, node.value) if isinstance(node, ast.Attribute) else None
    found = script.defined_in(tree, made.func) if isinstance(made, ast.Call) else None
    return found is not None and not re.search(r"parse_|[Aa]rg|Namespace", ast.unparse(found[1]))


def _is_given(tree: Tree, node: ast.expr) -> bool:
    """Whether a node is the option, or a setting in which another file stores it: ``config.LOCAL_RANK``."""
    if _is_option(node) or not isinstance(node, ast.Attribute) or tree.stored is None:
        return _is_option(node)
    held = [each for _, each in tree.stored(node.attr) if not isinstance(each, ast.Constant)]
    return bool(held) and all(map(_is_option, held))


def _is_option(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "local_rank"


def use(script: Script) -> Evidence | None:
    """Return where the local rank decides about a device; since no variable is read, it is what the option gave."""
    moved = [
        each for each in script.nodes(ast.Call) if isinstance(each.func, ast.Attribute) and each.func.attr in MOVES
    ]
    for call in (*script.calls(*DEVICES), *moved):
        for node in ast.walk(call):
            if isinstance(node, (ast.Name, ast.Attribute)) and _holds(script, node):
                return script.seen(node)
    return None


def _holds(script: Script, node: ast.Name | ast.Attribute) -> bool:
    """Whether a variable holds the local rank, or what was calculated from it."""
    made = script.value(node)
    parts = [each for each in ast.walk(made) if isinstance(each, (ast.Name, ast.Attribute))] if made is not node else []
    return any(script.fact(each) is Fact.LOCAL_RANK for each in (node, *parts))
