"""Where samples that all ranks have alike are drawn, or read, and how each rank comes to its own."""

from __future__ import annotations

import ast

from ddpdoctor.check import (
    DataSeen,
    EpochStarted,
    Fix,
    Site,
    StepFingerprinted,
    Training,
    last_name,
    statement_at,
    tree_of,
)

from .._cuts import DRAWS
from .._lines import given_out, seeded_alike
from .._words import STREAM


def stream_read(event: StepFingerprinted, training: Training) -> tuple[Site, Fix] | None:
    """Return where the iterable data set that the training goes through gives its samples, and how ranks share them."""
    fed = {each.loader for each in training.of(EpochStarted, pid=event.pid, training=True) if each.iterable}
    seen = (each for each in training.of(DataSeen, pid=event.pid) if each.loader in fed and each.reader is not None)
    reader = next((each.reader for each in seen), None)
    return (given_out(reader), STREAM) if reader is not None else None


def drawn_by(seeded: Site | None) -> Fix | None:
    """Return how each rank comes to draw samples of its own, where the process draws them after one seed on all."""
    statement = statement_at(tree_of(seeded.file), seeded.line) if seeded is not None else None
    if seeded is None or not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None  # a generator of the script's own, which can be that of the data itself
    call = statement.value
    draws = any(last_name(each.func) in {*DRAWS, "randint", "integers"} for each in tree_of(seeded.file).of(ast.Call))
    if not draws or len(call.args) != 1 or last_name(call.func) not in {"manual_seed", "seed"}:
        return None
    said, seed = ast.unparse(call.func), ast.unparse(call.args[0])
    return Fix(
        "seed each rank with its own number, and it draws other samples; DDP gives all ranks rank 0's weights",
        diff=f"-{said}({seed})\n+{said}({seed} + dist.get_rank())",
    )


def drawn_alike(site: Site | None) -> Site | None:
    """Return the line that draws samples with one seed on all ranks; weights are drawn with one on purpose."""
    seeded = seeded_alike(site)
    statement = statement_at(tree_of(seeded.file), seeded.line) if seeded is not None else None
    calls = [each for each in ast.walk(statement) if isinstance(each, ast.Call)] if statement is not None else []
    return seeded if any(last_name(each.func) in DRAWS for each in calls) else None
