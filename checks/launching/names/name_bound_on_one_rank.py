"""A name is given a value on one rank alone, and read on all of them.

## What happens

`if rank == 0: folder = make_folder()`, and further down, on every rank, `os.listdir(folder)`: the other ranks end with
"UnboundLocalError: cannot access local variable 'folder' where it is not associated with a value", or "NameError: name
'folder' is not defined" at the top of a script. Rank 0 goes on, and waits for them in its next collective. In a
training of one process, where the rank is 0, nothing of this shows.

A sum and a count that start at 0 and are counted up under such a test are the same trap: the other ranks divide 0 by 0,
and end with "ZeroDivisionError: division by zero".

## How to be sure

All lines of the function that give the name a value stand behind a test that lets one rank through, and no test that
can depend on the rank stands around the line that reads it. Of a division: both of its numbers are 0 before the test,
and are counted up nowhere else.

## How to mend it

Give the name a value on all ranks before the test: what follows from the options alone is the same everywhere. What
one rank alone can know, `torch.distributed.broadcast_object_list` hands to the others. What is meant for one rank
alone belongs behind the test as well.

## Versions and sources

Holds for all versions of Python and torch. Source: Python's language reference, "Resolution of names".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

from ._counted import divided
from ._one_rank import ASKS, is_caught, others_go_elsewhere

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP458", Severity.ERROR)
UNSEEN = re.compile(r"\b(?:locals|globals|exec)\(|\b(?:vars|dir)\((?:\s*\)|sys\.modules)")
"""What can ask for names, or bind them, without naming them."""


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for names of a function, or of the file, that one rank alone gives a value, and that all ranks read."""
    if (not script.runs_in_ranks and not script.text.count("rank")) or UNSEEN.search(script.text):
        return
    for scope, names in script.tree.bindings.items():
        if isinstance(scope, ast.ClassDef):
            continue
        for name, bindings in names.items():
            if name not in script.tree.read or not _is_branched(script, bindings[0].node):
                continue
            begun = [each.node for each in bindings if not _goes_on(script, scope, name, each.node)]
            tests = [script.one_rank_guard(each) for each in begun]
            if not tests or any(each is None or _is_of_another(each.test) for each in tests):
                continue  # or each rank has a value of its own
            read = _read(script, scope, name, min(each.line for each in bindings))
            if read is not None and tests[0] is not None and not others_go_elsewhere(script, begun[0], read):
                yield Finding(
                    f"{name} is given a value on one rank alone, and read here on all: the others end with a NameError",
                    (
                        script.seen(read, "a value on all ranks"),
                        script.seen(begun[0]),
                        script.seen(tests[0].test),
                    ),
                    Fix(
                        "give it a value on all ranks, hand it to the others, or read it behind the same test",
                        diff=f"+given = [{name} if rank == 0 else None]\n"
                        "+torch.distributed.broadcast_object_list(given, src=0)",
                    ),
                    script.place(read),
                )


@lint
def counts_in_source(script: Script) -> Iterator[Finding]:
    """Look for a division by what one rank alone has counted, of what it alone has summed."""
    if not script.runs_in_ranks and not script.text.count("rank"):
        return
    for division, count, guard in divided(script):
        names = f"{script.code(division.left)}, {count.id}"
        yield Finding(
            f"{count.id} is counted on one rank alone, and divided by here on all: it is 0 on the others, which "
            "end with a ZeroDivisionError",
            (script.seen(division, f"{count.id} of all ranks"), script.seen(guard.test)),
            Fix(
                "count on all ranks, hand the sums to the others before, or divide behind the same test",
                diff=f"+sums = [{names}]\n+torch.distributed.broadcast_object_list(sums, src=0)\n+{names} = sums",
            ),
            script.place(division),
        )


def _is_branched(script: Script, node: ast.AST) -> bool:
    """Whether a node stands in an ``if``: to ask for that first is quick, and true of few."""
    return any(isinstance(each, ast.If) for each in script.tree.above(node))


def _is_of_another(test: ast.expr) -> bool:
    """Whether a test names another rank than the first: ``rank == 1``, beside ``rank == 0``."""
    return any(isinstance(each, ast.Constant) and each.value not in {0, None} for each in ast.walk(test))


def _goes_on(script: Script, scope: ast.AST, name: str, binding: ast.AST) -> bool:
    """Whether what gives a name a value reads it first, or stands behind a test that does: ``if new > best``."""
    around = [each.test for each in script.tree.above(binding) if isinstance(each, (ast.If, ast.While))]
    own = binding.value if isinstance(binding, (ast.Assign, ast.AnnAssign)) else None
    read = [node for part in (own, *around) if part is not None for node in ast.walk(part)]
    return isinstance(binding, ast.AugAssign) or any(
        isinstance(node, ast.Name) and node.id == name and script.tree.scope(node) is scope for node in read
    )


def _read(script: Script, scope: ast.AST, name: str, line: int) -> ast.Name | None:
    """Return the first line below another that reads a name of a scope on all ranks, where a failure is not caught."""
    for node in script.tree.read.get(name, ()):
        if script.tree.scope(node) is not scope or node.lineno <= line or is_caught(script, node):
            continue
        if any(ASKS.search(script.code(each.test)) for each in script.guards(node)):
            continue
        if script.all_ranks_reach(node) or script.ranks_of_others_reach(node):
            return node
    return None
