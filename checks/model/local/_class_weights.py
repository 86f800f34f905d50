"""What a loss weighs the classes by, and is not the same on all ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Finding, Fix, Place, keyword, last_name, tree_of

from .._words import listed

if TYPE_CHECKING:
    from ddpdoctor.check import Statistic, StepFingerprinted

WEIGHTS = ("weight", "pos_weight", "alpha")
LOSS = re.compile(r"loss|entropy|nll|bce|focal|criterion", re.IGNORECASE)


def weights_of_losses(apart: Mapping[str, Sequence[Statistic]], event: StepFingerprinted) -> Iterator[Finding]:
    """Yield one finding for the weights that a loss is called with, of the variables that ranks have apart."""
    file = event.site.file if event.site else ""
    made = {path: _line(row[0], file) for path, row in apart.items()}
    told = {path: line for path, line in made.items() if line}
    if not told:
        return
    path, line = next(iter(told.items()))
    norms = ", ".join(f"{each.print[-1]:.4g} on rank {rank}" for rank, each in enumerate(apart[path][:8]) if each.print)
    yield Finding(
        f"the loss weighs the classes otherwise on each rank: {listed(sorted(told), 4)}",
        (
            Evidence(f"the norm of {path}: {norms}", "the same on all ranks", f"before step {event.number}"),
            Evidence("different, and as they are, in the last compared steps", "", "all ranks"),
            Evidence(f"given to the loss at line {line}", "", file),
        ),
        Fix(
            "count the classes over all ranks, or over the whole data set, before weights are computed from the counts",
            diff=" counts = torch.bincount(labels, minlength=classes).float()   # of this rank\n"
            "+dist.all_reduce(counts)\n weights = counts.sum() / counts",
        ),
        Place(file=file, line=_made(path, file) or line),
    )


def _made(name: str, file: str) -> int:
    """Return the line that first gives a variable a value; 0 without one."""
    assigned = (each for each in tree_of(file).of(ast.Assign) if name in map(ast.unparse, each.targets))
    return min((each.lineno for each in assigned), default=0)


def _line(held: Statistic, file: str) -> int:
    """Return the line of a loss that is given a variable to weigh classes by; 0 where there is none in its file."""
    calls = tree_of(file).of(ast.Call) if file and held.file == file else []
    return next((call.lineno for call in calls if held.path in map(ast.unparse, _weights(call))), 0)


def _weights(call: ast.Call) -> list[ast.expr]:
    """Return what the call of a function that computes a loss is given to weigh classes by."""
    name = last_name(call.func)
    if not LOSS.search(name) or name[0].isupper():  # what a class is given, its object holds
        return []
    return [given for name in WEIGHTS if (given := keyword(call, name)) is not None]
