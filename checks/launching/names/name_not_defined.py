"""A line of a training names what nothing defines: the ranks that come to it end, and the others wait for them.

## What happens

`dist.get_world_size()` where the file never imports `dist`, `DDP(model_sync)` where there is only `model`,
`save_check_point(...)` beside a function `save_checkpoint`: Python looks a name up when the line runs. All ranks start,
load their data and train until they come to it, and end with "NameError: name 'dist' is not defined". Behind
`if rank == 0:` that is rank 0 alone; the others wait for it in their next collective until it times out, and its error
is the one to look for. A short run, or one of a single process, often never comes to the line.

## How to be sure

Nothing in the file gives the name a value: no import, assignment, function, parameter, loop or `global`; and Python has
no such name of its own. A line that nothing comes to does not count: behind a `raise`, or behind a name alone on a line
that nothing defines, which is put there to fail, or in a function that the script names nowhere and no other file
takes. Nor does a notebook that is exported as a script, whose host has names of its own (`spark`, `display`). Reported
in files that make a process group, wrap a model or use a
framework of ranks; and in files of such a training that call `torch.distributed` or a sampler's `set_epoch` themselves.
`ruff check --select F821` finds such names in all other files.

## How to mend it

Import it, or write the name that was meant.

## Versions and sources

Holds for all versions of Python and torch. Source: Python's language reference, "Resolution of names".
"""

from __future__ import annotations

import ast
import builtins
import difflib
import re
from collections.abc import Iterator, Set as AbstractSet
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

from ..._frameworks.trainer import runs_in_ranks
from ._idle import is_idle
from ._one_rank import is_caught

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP460", Severity.ERROR)
OF_PYTHON = frozenset(dir(builtins)) | {"__file__", "__class__", "__builtins__", "__path__", "__annotations__"}
UNSEEN = re.compile(
    r"(?<![.\w])(?:globals|exec|eval|locals|vars)\(|\bbuiltins\b|import +\*|^[%!]"
    r"|^# (?:Databricks notebook source|COMMAND -{5}|MAGIC %|In\[)|\bget_ipython\(",
    re.MULTILINE,
)
"""What can bind names without naming them; and a notebook as a script, for which its host has bound some."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
JOINS = r"init_process_group\("
OF_RANKS = re.compile(r"\bsampler\.set_epoch\(|\b(?:dist|distributed)\.\w+\(|\bDistributed(?:DataParallel|Sampler)\(")
"""What a part of a training calls that runs in its ranks."""
OF_ANOTHER = re.compile(r"TYPE_CHECKING|\bversion_info\b|\bpython_version|\bPY[23]\b")
"""Tests that hold for a type checker, or in another version of Python, which has other names (``unicode``)."""
IMPORTS = {
    "dist": "import torch.distributed as dist",
    "mp": "import torch.multiprocessing as mp",
    "DDP": "from torch.nn.parallel import DistributedDataParallel as DDP",
    "DistributedDataParallel": "from torch.nn.parallel import DistributedDataParallel",
    "DistributedSampler": "from torch.utils.data import DistributedSampler",
    "FSDP": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
    **{name: f"import {name}" for name in ("torch", "os", "sys", "time", "json", "argparse", "datetime", "deepspeed")},
}


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for the first line that reads a name which nothing binds, in a file that runs in several ranks."""
    if script.is_test or script.cells is not None or UNSEEN.search(script.text) or not _is_in_ranks(script, project):
        return
    bound = {name for scope in script.tree.bindings.values() for name in scope} | _captured(script)
    undefined = script.tree.read.keys() - bound - OF_PYTHON
    for name in sorted(undefined):
        reads = [
            each
            for each in script.tree.read[name]
            if _is_run(script, each) and not _is_dead(script, each, undefined) and not is_idle(script, project, each)
        ]
        if reads and not any(is_caught(script, each) for each in script.tree.read[name]):
            guard = script.one_rank_guard(reads[0])
            ends = "rank 0 ends here with a NameError, and the others wait for it" if guard else "a NameError"
            yield Finding(
                f"nothing defines {name}: {ends}",
                (script.seen(reads[0], _meant(name, bound) or "a name that is defined"),),
                Fix(
                    "import it" if name in IMPORTS else "define it, or write the name that was meant",
                    diff=f"+{IMPORTS[name]}" if name in IMPORTS else "",
                ),
                script.place(reads[0]),
            )


def _is_in_ranks(script: Script, project: Around) -> bool:
    """Whether the file runs in several ranks: by itself, or as a part of a training that another file begins."""
    if runs_in_ranks(script, project):
        return True
    return OF_RANKS.search(script.text) is not None and (project.does(JOINS) or project.is_part_of(JOINS))


def _captured(script: Script) -> set[str]:
    """Return the names that the rest of a mapping is bound to in a ``match``."""
    return {each.rest for each in script.nodes(ast.MatchMapping) if each.rest}


def _is_run(script: Script, read: ast.Name) -> bool:
    """Whether a training can go on for long before Python looks a name up: within a function.

    Not in an annotation, nor as a whole line, which is to fail there.
    """
    if isinstance(script.tree.parents[read], ast.Expr) or script.function(read) is None:
        return False
    child: ast.AST = read
    for above in script.tree.above(read):
        is_note = isinstance(above, (ast.arg, ast.AnnAssign)) and child is above.annotation
        if is_note or (isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)) and child is above.returns):
            return False
        if isinstance(above, (ast.If, ast.IfExp)) and OF_ANOTHER.search(script.code(above.test)):
            return False
        child = above
    return True


def _is_dead(script: Script, read: ast.Name, undefined: AbstractSet[str]) -> bool:
    """Whether Python never comes to a line: something before it in its block, or in one around, always leaves.

    One of these is a whole line that is to fail: a name alone that nothing defines, with which an author marks what was
    never tried.
    """
    for statement in (each for each in (read, *script.tree.above(read)) if isinstance(each, ast.stmt)):
        if isinstance(statement, FUNCTIONS):
            return False
        block = script.tree.block(statement)
        for before in block[: block.index(statement)]:
            match before:
                case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
                    return True
                case ast.Expr(value=ast.Name(id=name)) if name in undefined:
                    return True
                case ast.Assert(test=ast.Constant(value=value)) if not value:
                    return True
    return False


def _meant(name: str, bound: set[str]) -> str:
    return next(iter(difflib.get_close_matches(name, bound, 1, 0.8)), "")
