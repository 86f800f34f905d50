"""A test that asks a progress bar how far it is: one that is disabled on the other ranks stays at 0 there."""

from __future__ import annotations

import ast
from typing import NamedTuple

from ddpdoctor.check import NO_PYTHON, Evidence, Fix, Site, keyword, last_name, tree_of

from ..hangs.source._rewritten import shown

COUNT = "n"
"""The attribute of a bar of tqdm that has how many times it was told to go on."""


class Bar(NamedTuple):
    """A bar that the test asks, what says so, and how the steps are counted without it."""

    told: str
    evidence: Evidence
    fix: Fix


def asked_bar(site: Site, guard: str) -> Bar | None:
    """Find the bar in a guard's test, by the line of its file that makes it with ``disable=``."""
    test = shown(guard).removeprefix("if ")
    try:
        asked = [each for each in ast.walk(ast.parse(test, mode="eval")) if isinstance(each, ast.Attribute)]
    except NO_PYTHON:
        return None
    for each in asked:
        name = last_name(each.value)
        if each.attr != COUNT or not name:
            continue
        for made in tree_of(site.file).of(ast.Assign):
            disabled = keyword(made.value, "disable") if isinstance(made.value, ast.Call) else None
            if disabled is None or isinstance(disabled, ast.Constant) or name not in map(last_name, made.targets):
                continue
            count = ast.unparse(each)
            return Bar(
                f"{count} stays 0 where `disable={ast.unparse(disabled)}` holds",
                Evidence(ast.unparse(made), "a count that all ranks have", f"{site.file}:{made.lineno}"),
                Fix(
                    "count the steps without the bar, which counts on one rank alone",
                    diff=f"+step += 1   # on all ranks, beside {ast.unparse(each.value)}.update(1)\n"
                    f"-if {test}:\n+if {test.replace(count, 'step')}:",
                ),
            )
    return None
