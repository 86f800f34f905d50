"""Groups of an optimizer that hold nothing, as what chose their parameters by name found none."""

from __future__ import annotations

import ast
import linecache
import re

from ddpdoctor.check import (
    Evidence,
    Finding,
    Fix,
    OptimizerSeen,
    Place,
    Severity,
    Site,
    StepSampled,
    last_name,
    tree_of,
)

from .._words import counted, listed

READ = re.compile(r"\b([a-z_]\w*)(\.named_parameters\(\))", re.IGNORECASE)
SAID = {"startswith", "match", "fullmatch"}


def of_an_empty_group(event: StepSampled, holds: OptimizerSeen) -> Finding:
    """Return what is in no optimizer while a group of one holds nothing."""
    chosen = _chosen_by(event.site, event.unheld) or _chosen_by(holds.site, event.unheld)
    groups = counted(holds.empty, "group")
    diff = (
        "-slow = [p for name, p in model.named_parameters() if name.startswith('backbone')]\n"
        "+slow = [p for name, p in model.module.named_parameters() if name.startswith('backbone')]"
    )
    if chosen is not None:
        line = linecache.getline(*chosen).rstrip()
        diff = f"-{line}\n+{_bare(line)}"
    where = chosen or ((event.site.file, event.site.line) if event.site else ("", 0))
    many = len(event.unheld) > 1
    return Finding(
        f"{groups} of {holds.kind} {'holds' if holds.empty == 1 else 'hold'} nothing, and "
        f"{counted(len(event.unheld), 'parameter')} of the model with a gradient {'are' if many else 'is'} in no "
        f"optimizer, and never changed: {listed(event.unheld, 4)}",
        (
            Evidence(f"{groups} of {holds.kind} without a parameter", "some in each group", f"rank {event.rank}"),
            Evidence(
                f"with a gradient, and in no optimizer: {listed(event.unheld, 4)}",
                "held by an optimizer",
                f"rank {event.rank}, right before step {event.number}",
            ),
        ),
        Fix("choose them by the names of the bare model: those of a wrapped one begin with module.", diff=diff),
        Place(file=where[0] or None, line=where[1] or None),
        severity=Severity.WARNING,
    )


def _chosen_by(site: Site | None, unheld: tuple[str, ...]) -> tuple[str, int] | None:
    """Return the line that asks for names by a beginning that these have in the bare model alone."""
    if site is None:
        return None
    bare = [name.removeprefix("module.") for name in unheld]
    for call in tree_of(site.file).of(ast.Call):
        texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        begins = last_name(call.func) in SAID and any(name.startswith(text) for text in texts for name in bare if text)
        if begins and _bare(linecache.getline(site.file, call.lineno)) != linecache.getline(site.file, call.lineno):
            return site.file, call.lineno
    return None


def _bare(line: str) -> str:
    """Return a line that goes through the names of a model as one that goes through those of the bare one."""
    return READ.sub(r'getattr(\1, "module", \1)\2', line)
