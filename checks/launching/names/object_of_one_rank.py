"""A name is None on the ranks that raised, since it is made under a test of the rank.

## What happens

A writer of TensorBoard, a logger, a progress bar, an average of the weights is made once: `writer =
SummaryWriter(folder) if rank == 0 else None`. A later line uses it without the test: "'NoneType' object has no
attribute 'add_scalar'", on every rank but 0. torchrun then ends all of them. With one process the same script works.

wandb is one for a whole process: where `wandb.init()` is called on rank 0 alone, `wandb.run` is None on the others, and
`wandb.log()` ends them with "You must call wandb.init() before wandb.log()".

## How to be sure

Rank 0 did not raise it, and the others did. `grep -n 'writer *=' train.py` shows the test.

In a source (`ddpdoctor lint`): the name holds None wherever a test of the rank does not let it be made, and all ranks
come to a line that asks something of it, behind no test of the name, and outside of any `try`.

## How to mend it

Ask at the line that uses it, `if writer is not None:`, or make on the others something that does nothing. What is
computed for it by a collective, as a mean over the ranks, stays outside of that test.

## Versions and sources

Python's own error; it does not depend on torch's version. Seen in many scripts of TensorBoard and wandb.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    NO_PYTHON,
    ONE_RANK,
    Ailment,
    Ambiguity,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    dotted,
    lint,
    log_pattern,
)

from ._one_rank import is_caught, others_go_elsewhere

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP449", Severity.ERROR)
NONE = r"AttributeError: 'NoneType' object has no attribute '(\w+)'"
ENDED = r"failed \(exitcode: 1\) local_rank: (\d+)|rank\s*: (\d+) \(local_rank: \d+\)\n\s*exitcode\s*: 1 "
STAGES = re.compile(r"(?i:megatron|pipeline|stage)")
OF_STAGES = "the model is split into the stages of a pipeline, and only the first one, or the last, is given it"
OF_LOGGERS = frozenset({
    "add_figure", "add_graph", "add_histogram", "add_image", "add_images", "add_scalar", "add_scalars", "add_text",
    "add_video", "define_metric", "info", "log", "log_dict", "log_hyperparams", "log_metric", "log_metrics",
    "set_description", "set_postfix", "set_postfix_str", "warning", "watch",
})  # fmt: skip


@log_pattern(NONE, context=(ENDED,), plain=True)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Ask which ranks raised it: not rank 0, and what is None is a logger by what is asked of it."""
    frame = record.users
    raised = log.ranks(NONE) or frozenset(int(next(filter(None, found.groups()))) for _, found in log.find(ENDED))
    if frame is None or record.frames[-1] != frame or not raised or 0 in raised:
        return
    name = _holder(record.code, match[1])
    if not name:
        return
    ranks = ", ".join(map(str, sorted(raised)[:8]))
    is_staged = STAGES.search(record.text) is not None
    search = rf"grep -nE '\b{name.rpartition('.')[2]}\b *=' {frame.file}"
    yield Finding(
        f"{name} is None on rank {ranks}, and rank 0 has one: it is made under a test of the rank"
        if match[1] in OF_LOGGERS
        else f"{name} is None on rank {ranks}, and rank 0 did not fail there",
        (record.proof(match, f"{name} is used only where it was made"),),
        Fix("see where it gets its value, and on which ranks", command=search)
        if is_staged
        else Fix(
            "ask whether it is there, at the line that uses it; what is computed over all ranks stays outside",
            diff=f"-{record.code}\n+if {name} is not None:\n+    {record.code}",
        ),
        record.place,
        ambiguity=None
        if match[1] in OF_LOGGERS
        else Ambiguity(
            (
                f"{name} is made under a test of the rank, and used without it",
                f"what {name} is taken from, a sample or a file, is not there on rank {ranks} alone",
                *((OF_STAGES,) if is_staged else ()),
            ),
            search,
        ),
    )


def _holder(code: str, attribute: str) -> str:
    """Return the name, or the attribute of one, that a line asks for this attribute."""
    try:
        tree = ast.parse(code)
    except NO_PYTHON:
        return ""
    asked = (each.value for each in ast.walk(tree) if isinstance(each, ast.Attribute) and each.attr == attribute)
    return next((ast.unparse(each) for each in asked if isinstance(each, ast.Name | ast.Attribute)), "")


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for what is asked on all ranks of a name that holds None on all but one; once for each name."""
    if _holders(script):
        told: set[str] = set()
        for node in script.nodes(ast.Attribute):
            name = dotted(node.value) or ""
            if name in told or not isinstance(node.ctx, ast.Load) or not _is_none_on_others(script, node.value):
                continue
            if _all_come(script, node, name):
                told.add(name)
                yield _used(script, node, f"{name} is None on all ranks but one, and asked here on all of them", name)
    yield from _of_wandb(script, project)


def _holders(script: Script) -> bool:
    """Whether a name of the file is given None, or something or None by a test: to ask for that first is quick."""
    assigned: list[ast.Assign | ast.AnnAssign] = [*script.nodes(ast.Assign), *script.nodes(ast.AnnAssign)]
    given = [each.value for each in assigned if each.value is not None]
    return any(
        isinstance(each, ast.IfExp) and _is_none_on_a_side(each) and script.who(each.test) is not None for each in given
    ) or any(
        isinstance(each.value, ast.Constant) and each.value.value is None and _is_given_on_one(script, each)
        for each in script.nodes(ast.Assign)
    )


def _is_none_on_a_side(node: ast.IfExp) -> bool:
    return any(isinstance(each, ast.Constant) and each.value is None for each in (node.body, node.orelse))


def _is_given_on_one(script: Script, nothing: ast.Assign) -> bool:
    """Whether one rank alone gives the name something that an assignment gives None."""
    names = {script.code(each) for each in nothing.targets}
    return any(
        names & {script.code(target) for target in each.targets} and script.one_rank_guard(each) is not None
        for each in script.nodes(ast.Assign)
        if each is not nothing and script.function(each) is script.function(nothing)
    )


def _is_none_on_others(script: Script, node: ast.expr) -> bool:
    """Whether a name is given None, and something else on one rank alone."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    held = [part for _, each in script.origins(script.tree, node) for part in (each, *_branches(each))]
    nothing = [each for each in held if isinstance(each, ast.Constant) and each.value is None]
    return bool(nothing) and script.who(node) == ONE_RANK


def _branches(node: ast.expr) -> tuple[ast.expr, ...]:
    return (node.body, node.orelse) if isinstance(node, ast.IfExp) else ()


def _all_come(script: Script, node: ast.expr, name: str) -> bool:
    """Whether all ranks come to a node, behind no test of a name, and where its failure is not caught."""
    if any(name in script.code(each.test) for each in script.guards(node)) or is_caught(script, node):
        return False
    return script.all_ranks_reach(node) or script.ranks_of_others_reach(node)


NEEDS_A_RUN = ("wandb.log", "wandb.watch", "wandb.save", "wandb.log_artifact", "wandb.config.update")
"""What wandb refuses in a process in which init() was not called."""


def _of_wandb(script: Script, project: Around) -> Iterator[Finding]:
    """Look for what all ranks ask of wandb, which one rank alone has begun."""
    begun = script.calls("wandb.init")
    tests = [script.one_rank_guard(each) for each in begun]
    if not begun or any(each is None for each in tests) or project.others_say(r"wandb\.init\("):
        return
    of_the_run = [each for each in script.nodes(ast.Attribute) if script.resolve(each.value) == "wandb.run"]
    for node in (*(each.func for each in script.calls(*NEEDS_A_RUN)), *of_the_run):
        if node.lineno > begun[0].lineno and _all_come(script, node, "wandb.run"):
            if not others_go_elsewhere(script, begun[0], node):
                said = f"wandb is begun on one rank alone, and {script.code(node)} is asked on all"
                yield _used(script, node, said, "wandb.run")
            return


def _used(script: Script, node: ast.expr, message: str, name: str) -> Finding:
    statement = script.tree.statement(node) or node
    code = script.code(statement)
    return Finding(
        f"{message}: the others end with an error",
        (script.seen(node, f"if {name} is not None:"),),
        Fix(
            "ask whether it is there; what is computed over all ranks stays outside of that test",
            diff=f"-{code}\n+if {name} is not None:\n+    {code}",
        ),
        script.place(node),
    )
