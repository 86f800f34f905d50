"""A name is None on the ranks that raised, since it is made under a test of the rank.

## What happens

A writer of TensorBoard, a logger, a progress bar, an average of the weights is made once: `writer =
SummaryWriter(folder) if rank == 0 else None`. A later line uses it without the test: "'NoneType' object has no
attribute 'add_scalar'", on every rank but 0. torchrun then ends all of them. With one process the same script works.

## How to be sure

Rank 0 did not raise it, and the others did. `grep -n 'writer *=' train.py` shows the test.

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

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP449", Severity.ERROR)
NONE = r"AttributeError: 'NoneType' object has no attribute '(\w+)'"
ENDED = r"failed \(exitcode: 1\) local_rank: (\d+)|rank\s*: (\d+) \(local_rank: \d+\)\n\s*exitcode\s*: 1 "
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
    yield Finding(
        f"{name} is None on rank {ranks}, and rank 0 has one: it is made under a test of the rank",
        (record.proof(match, f"{name} is used only where it was made"),),
        Fix(
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
            ),
            rf"grep -nE '\b{name.rpartition('.')[2]}\b *=' {frame.file}",
        ),
    )


def _holder(code: str, attribute: str) -> str:
    """Return the name, or the attribute of one, that a line asks for this attribute."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    asked = (each.value for each in ast.walk(tree) if isinstance(each, ast.Attribute) and each.attr == attribute)
    return next((ast.unparse(each) for each in asked if isinstance(each, ast.Name | ast.Attribute)), "")
