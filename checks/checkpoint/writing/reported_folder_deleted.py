"""Ray Train is told of a checkpoint when the temporary folder that it lies in is deleted.

## What happens

`ray.train.report(..., checkpoint=Checkpoint.from_directory(folder))` copies the folder to the storage path, at
that moment or soon after. A folder of `with tempfile.TemporaryDirectory() as folder:` ends with the block: a report
behind it finds nothing there, "FileNotFoundError: ... /tmp/tmpab12cd", in the workers that have a checkpoint.

## How to be sure

In a source (`ddpdoctor lint`): the checkpoint is made of the folder within the block, and reported behind it. In a log:
the error is about a folder of Python's `tempfile`, and comes of Ray's copying.

## How to mend it

Report within the block; all workers call it, with `checkpoint=None` where a worker has none:

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
            checkpoint = Checkpoint.from_directory(folder)
        ray.train.report(metrics, checkpoint=checkpoint)

## Versions and sources

Source: Ray documentation, "Saving and Loading Checkpoints"; ray/train/v2/_internal/execution/storage.py,
`persist_current_checkpoint`. Holds for Ray 2.7 and later.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, keyword, lint, log_pattern

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP857", Severity.ERROR)
FOLDER = "tempfile.TemporaryDirectory"
MADE = ("ray.train.Checkpoint.from_directory", "ray.air.Checkpoint.from_directory")
REPORTS = ("ray.train.report", "ray.air.session.report")
FIX = Fix(
    "report it within the block",
    diff=" with tempfile.TemporaryDirectory() as folder:\n     checkpoint = Checkpoint.from_directory(folder)\n"
    "-ray.train.report(metrics, checkpoint=checkpoint)\n+    ray.train.report(metrics, checkpoint=checkpoint)",
)


@log_pattern(r"FileNotFoundError: \[Errno 2\][^\n]{0,60}'(?P<folder>[^'\n]{1,200}[/\\]tmp[a-z0-9_]{8})'")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Look whether Ray misses a folder of Python's tempfile as it copies a checkpoint."""
    if re.search(r"persist_current_checkpoint|ray[/\\]train[/\\].{0,80}storage\.py", record.text):
        yield Finding(
            f"a reported checkpoint is gone: {match['folder']} was deleted before Ray Train had copied it",
            (record.proof(match, "a folder that is there until ray.train.report returns"),),
            FIX,
            record.place,
        )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a report behind the block whose folder the checkpoint is made of."""
    made = [*script.calls(*MADE)]
    for report in script.calls(*REPORTS) if made else ():
        given = keyword(report, "checkpoint")
        for call in made if isinstance(given, ast.Name) else ():
            block = _block(script, call)
            parent = script.tree.parents.get(call)
            names = parent.targets if isinstance(parent, ast.Assign) else []
            is_it = isinstance(given, ast.Name) and any(
                isinstance(each, ast.Name) and each.id == given.id for each in names
            )
            if block is None or not is_it or script.function(report) is not script.function(call):
                continue
            if block not in script.tree.above(report) and report.lineno > (block.end_lineno or report.lineno):
                yield Finding(
                    f"the checkpoint is reported behind the block of line {block.lineno}, which deletes its folder",
                    (script.seen(report, "ray.train.report within the block"), script.seen(call), script.seen(block)),
                    FIX,
                    script.place(report),
                )


def _block(script: Script, call: ast.Call) -> ast.With | None:
    """Return the block that deletes the folder which a call is given, at its end."""
    folder = call.args[0] if call.args else keyword(call, "path")
    for block in script.tree.above(call):
        for item in block.items if isinstance(block, ast.With) else ():
            is_temporary = isinstance(item.context_expr, ast.Call) and script.resolve(item.context_expr.func) == FOLDER
            names = {each.id for each in ast.walk(folder or call) if isinstance(each, ast.Name)}
            if is_temporary and isinstance(item.optional_vars, ast.Name) and item.optional_vars.id in names:
                return block if isinstance(block, ast.With) else None
    return None
