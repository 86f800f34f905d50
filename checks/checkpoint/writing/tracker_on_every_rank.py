"""Every rank writes to the experiment tracker.

## What happens

A `SummaryWriter` on every rank writes as many event files into one folder as there are ranks, and TensorBoard shows
their curves as one that jumps. `wandb.init` on every rank opens as many runs, each with a part of the numbers.

## How to be sure

Count the event files, or the runs. Reported where every rank is shown to come to the line, and neither the folder nor
a group tells the ranks apart; a date in its name does so by chance alone.

## How to mend it

Make it on one rank: `writer = SummaryWriter(folder) if rank == 0 else None`, and ask for it where something is
written.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/utils/tensorboard/writer.py; the documentation of
Weights & Biases on distributed training.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, is_open, keyword, last_name, lint

from ..._frameworks.trainer import runs_in_ranks, trains_in_ranks
from ..._scripts.source import STARTED_BY_LAUNCHERS, target

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree

AILMENT = Ailment("DDP854", Severity.WARNING)
WRITERS = ("torch.utils.tensorboard.SummaryWriter", "wandb.init")


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for trackers that every rank makes."""
    others = script.frameworks - STARTED_BY_LAUNCHERS
    if others and not (others == {"transformers"} and trains_in_ranks(script, project)):
        return
    for call in script.calls(*WRITERS):
        given = [*call.args, *(word.value for word in call.keywords if word.arg != "config")]
        told_apart = is_open(call) or any(word.arg in APART and not _is_online(word) for word in call.keywords)
        apart = told_apart or any(_differs_by_more_than_clock(script, script.tree, each) for each in given)
        if not apart and _is_reached(script, project, call) and not _is_never_written(script, call):
            yield Finding(
                f"every rank makes a {script.code(call.func)}",
                (script.seen(call, "if torch.distributed.get_rank() == 0:"),),
                Fix("make it on one rank, and ask for it where something is written"),
                script.place(call),
            )


def _is_never_written(script: Script, call: ast.Call) -> bool:
    """Whether nothing is done with a writer but that it is closed: it leaves an empty file for each rank."""
    name = target(script, call)
    reads = script.tree.read.get(name or "", [])
    asked = [parent.attr for each in reads if isinstance(parent := script.tree.parents[each], ast.Attribute)]
    return bool(reads) and len(asked) == len(reads) and set(asked) <= {"close", "flush"}


APART = {"group", "mode", "settings"}
"""What tells the trackers of several ranks apart."""


CLOCK = re.compile(r"\b(?:strftime|now|today|utcnow|time|ctime|localtime|gmtime)$")


def _differs_by_more_than_clock(script: Script, tree: Tree, node: ast.expr, depth: int = 6) -> bool:
    """Whether a folder or a name can differ between the ranks by more than the second in which each of them asks.

    That parts them by chance, and gives a training as many runs as ranks.
    """
    if any(_is_unknown(script, tree, each.func) for each in ast.walk(node) if isinstance(each, ast.Call)):
        return True
    if not script.can_differ_in(tree, node):
        return False
    parts: list[tuple[Tree, ast.expr]] = []
    match node:
        case ast.Call(func=function) if CLOCK.search(ast.unparse(function)):
            return False
        case ast.Name() | ast.Attribute():
            parts = [each for each in script.origins(tree, node) if each[1] is not node]
        case _:
            parts = [(tree, each) for each in _parts(node)]
    return not parts or depth == 0 or any(_differs_by_more_than_clock(script, *each, depth - 1) for each in parts)


def _parts(node: ast.expr) -> list[ast.expr]:
    """Return what a text is put together from."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call() as inner, attr="strftime" | "isoformat" | "replace")):
            return [inner]
        case ast.Call(func=ast.Attribute(value=text, attr="format"), args=args):
            return [*args, text]
        case ast.Call(func=function, args=args) if last_name(function) in {
            "join",
            "str",
            "int",
            "round",
            "format",
            "Path",
        }:
            return args
        case ast.JoinedStr(values=values):
            return [each.value for each in values if isinstance(each, ast.FormattedValue)]
        case ast.BinOp(left=left, right=right):
            return [left, right]
    return []


def _is_unknown(script: Script, tree: Tree, called: ast.expr) -> bool:
    """Whether it is of a module that is neither Python's own nor seen: it can name a folder for each rank."""
    path = script.names_in(tree, called) or ""
    is_of_python = path.partition(".")[0] in sys.stdlib_module_names
    return "." in path and not is_of_python and script.defined_in(tree, called) is None


def _is_online(word: ast.keyword) -> bool:
    return isinstance(word.value, ast.Constant) and word.value.value == "online"


def _is_reached(script: Script, project: Around, call: ast.Call) -> bool:
    """Whether all ranks come to a line, of this file or of a training in another one that calls it."""
    if _runs_where_imported(script, call):
        return True
    if runs_in_ranks(script, project):
        return script.all_ranks_reach(call)
    return script.ranks_of_others_reach(call) or (script.all_ranks_reach(call) and script.joins_elsewhere(call))


def _runs_where_imported(script: Script, call: ast.Call) -> bool:
    """Whether a line stands outside of functions in a program that spawns: each rank imports the program anew."""
    spawns = script.calls("torch.multiprocessing.spawn")
    if script.function(call) is not None or script.tree.class_of(call) is not None or not spawns:
        return False
    if any((method := keyword(each, "start_method")) and script.code(method) != "'spawn'" for each in spawns):
        return False
    guards = script.guards(call)
    return not any("__name__" in script.code(each.test) or each.is_rankish(script.tree) for each in guards)
