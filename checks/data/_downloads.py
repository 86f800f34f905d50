"""What downloads a data set in a source, and which ranks come to it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    is_common_folder,
    keyword,
    last_name,
)

from .._scripts.source import STARTED_BY_LAUNCHERS

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script


def is_one_folder(script: Script, where: ast.expr) -> bool:
    return not script.can_differ(where) or is_common_folder(script.tree, where)


ONE_A_HOST = r"(?=[^\n]*--nproc[-_]per[-_]node[= ]1\b)(?=[^\n]*--nnodes[= ](?!1\b))"


def has_one_rank_a_host(script: Script, project: Around) -> bool:
    """Whether the ranks are on hosts of their own: by the script itself, or by what starts it."""
    if script.has_one_rank_a_host:
        return True
    texts = [re.sub(r"\\\n", " ", each) for each in project.launches_beside()]
    named = re.compile(rf"(?:python3?|torchrun|torch\.distributed\.\w+)\b[^\n]*\b{re.escape(script.name)}")
    lines = [line for each in texts for line in each.splitlines() if named.search(line)]
    return bool(lines) and all(re.search(ONE_A_HOST, each) for each in lines)


DATA_SET = re.compile(r"(torchvision|torchaudio)\.datasets\.(?:\w+\.)?[A-Z]")


def is_another_launchers(script: Script) -> bool:
    """Whether a framework starts the ranks by itself, somewhere within the script; Ray beside Horovod does not."""
    others = script.frameworks - STARTED_BY_LAUNCHERS
    return bool(others - {"ray"} if "horovod" in script.frameworks else others)


def is_data_set(script: Script, call: ast.Call) -> bool:
    """Whether it is a data set of torchvision or torchaudio, or a class of the file that is one."""
    if (own := script.names_class(call.func)) is not None:
        return any(DATA_SET.match(script.resolve(base) or "") for base in own.bases)
    path = script.resolve(call.func) or ""
    return DATA_SET.match(path) is not None and not path.endswith("FakeData")


def is_wanted(script: Script, wanted: ast.expr) -> bool:
    """Whether it says True on a new machine: ``True`` itself, or that the folder is not there."""
    match script.value(wanted):
        case ast.Constant(value=True):
            return True
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Attribute(attr="exists" | "isdir" | "is_dir"))):
            return True
    return False


def is_downloaded_before(script: Script, project: Around, call: ast.Call) -> bool:
    """Whether the process that starts the ranks makes the same data set before: they find it there."""
    name = script.code(call.func).rpartition(".")[2]
    for tree in (script.tree, *(each for _, each in project.trees(r"\bspawn\b|\bProcess\b"))):
        for other in tree.of(ast.Call):
            if other is call or last_name(other.func) != name:
                continue
            if keyword(other, "download") is not None and script.runs_before_ranks(tree, other):
                return True
    return False


JOINS = r"\binit_process_group\(|\bdeepspeed\.(?:initialize|init_distributed)\("
STARTS = r"\bspawn\b|\bProcess\(|\bPopen\b|_launch(?:er)?\(|\bstart_processes\b"
"""What starts the ranks, in a process that has imported the same files before."""


def is_of_ranks(script: Script, project: Around, call: ast.Call) -> bool:
    """Whether a line runs in a training of several ranks: the file makes the group, or one that calls its function.

    What stands outside of functions runs where such a file imports this one.
    """
    if script.runs_in_ranks:
        return True
    if script.frameworks:
        return False
    if script.function(call) is None and not script.guards(call) and "__main__" not in script.text:
        return project.is_part_of(JOINS) and not project.is_part_of(STARTS)
    return script.ranks_of_others_reach(call, at_once=True) or script.joins_elsewhere(call)
