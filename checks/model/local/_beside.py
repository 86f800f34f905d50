"""Tensors that a model holds beside its parameters and buffers, and that the ranks have built apart."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, Place, Severity

from .._words import listed
from ._held import Attribute

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam, Plain

FILES = 100
SEEDS = re.compile(r"manual_seed|seed_everything|set_seed|seed_all|set_random_seed|\brandom\.seed\(|\bseed\(")
METERS = re.compile("Metric|Meter|Logger|Monitor|Tracker")


def beside_the_model(model: ModelExam) -> Iterator[Finding]:
    """Yield a finding for the tensors of each object that samples meet."""
    owners: dict[str, list[tuple[Plain, ...]]] = {}
    for path, row in model.apart.items():
        attribute = _attribute(row[0])
        if not METERS.search(row[0].kind) and not attribute.is_exchanged() and attribute.meets_samples():
            owners.setdefault(path.rpartition(".")[0], []).append(row)
    for rows in owners.values():
        yield _finding(rows, model)


def _attribute(held: Plain) -> Attribute:
    return Attribute(f"model.{held.path}", held.kind, (held.file,))


def _finding(rows: list[tuple[Plain, ...]], model: ModelExam) -> Finding:
    held = rows[0][0]
    seeded = not any(row[0].path in model.apart_though_seeded for row in rows)
    place = _attribute(held).computed() or (held.file, 0)
    severity, ambiguity = _what_remains(model) if seeded else (Severity.WARNING, None)
    return Finding(
        f"{held.kind} computes with tensors that are not the same on all ranks, and DDP gives them to nobody, for they "
        f"are neither parameters nor buffers: {listed([row[0].path for row in rows], 4)}",
        (
            *(
                Evidence(
                    f"{row[0].path} begins {_numbers(each)}",
                    f"{_numbers(row[0])}, as on rank 0" if rank else "the same on all ranks",
                    f"rank {rank}",
                )
                for row in rows[:2]
                for rank, each in enumerate(row[:4])
            ),
            Evidence(
                "equal where all ranks are seeded alike" if seeded else "not equal where all ranks are seeded alike",
                "equal on all ranks, however they are seeded",
                "the model, built again",
            ),
        ),
        _fix([row[0] for row in rows]),
        Place(file=place[0] or None, line=place[1] or None),
        severity=severity,
        ambiguity=ambiguity,
    )


def _what_remains(model: ModelExam) -> tuple[Severity, Ambiguity]:
    """Return what the seeding decides: a note where a file beside the model's seeds something."""
    file = model.ranks[0].source
    folder = Path(file).parent if file else Path()
    texts = (_text(each) for each in sorted(folder.glob("*.py"))[:FILES])
    seeds = any(SEEDS.search(text) for text in texts)
    return Severity.NOTE if seeds else Severity.WARNING, Ambiguity(
        (
            "the ranks are not seeded, or each with a seed of its own, when the model is built",
            "the training seeds all ranks alike before it builds the model",
        ),
        f"grep -rn 'seed' --include='*.py' {folder}",
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _numbers(held: Plain) -> str:
    return f"[{', '.join(f'{each:.4g}' for each in held.first)}, ...]"


def _fix(held: Sequence[Plain]) -> Fix:
    """Return how rank 0's come to all: as buffers where each is assigned in a line of its Module, else by hand."""
    lines = [_as_buffer(each) for each in held]
    if all(lines):
        return Fix(
            "register them as buffers: DDP gives rank 0's to all ranks, and the state dict keeps them",
            diff="\n".join(filter(None, lines)),
        )
    return Fix(
        "give rank 0's to all ranks, before the model is wrapped",
        diff="\n".join(f"+dist.broadcast(model.{each.path}, src=0)" for each in held)
        + "\n model = DistributedDataParallel(model)",
    )


def _as_buffer(held: Plain) -> str | None:
    """Return the diff of the only line that gives an attribute of a Module its value; None where there is none."""
    name = held.path.rpartition(".")[2]
    found = [
        (file, node)
        for file, kind in _attribute(held).classes
        for node in ast.walk(kind)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))
        and any(isinstance(each, ast.Attribute) and each.attr == name for each in ast.walk(node) if _is_stored(each))
    ]
    if not held.module or len(found) != 1:
        return None
    file, node = found[0]
    line = linecache.getline(file, node.lineno).rstrip()
    if not isinstance(node, ast.Assign) or [*map(ast.unparse, node.targets)] != [f"self.{name}"]:
        return None
    if node.lineno != node.end_lineno:
        return None
    indent = line[: node.col_offset]
    return f'-{line}\n+{indent}self.register_buffer("{name}", {ast.unparse(node.value)})'


def _is_stored(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)
