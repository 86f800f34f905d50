"""Copies of a model that were made before DDP has given all ranks the same weights."""

from __future__ import annotations

import ast

from ddpdoctor.check import Fix, Site, statement_at, tree_of


def after_wrapping(variable: str, wraps: Site) -> Fix | None:
    """Return the lines that make the copy and that wrap the model, in the right order; None where they are not seen."""
    tree = tree_of(wraps.file)
    wrapping = statement_at(tree, wraps.line)
    made = [
        each
        for each in tree.of(ast.Assign)
        if wrapping is not None
        and each.lineno < wrapping.lineno
        and tree.function(each) is tree.function(wrapping)
        and any(ast.unparse(target) in {variable, variable.partition(".")[0]} for target in each.targets)
    ]
    if wrapping is None or not made or not isinstance(wrapping, ast.Assign):
        return None
    copies = ast.unparse(made[-1])
    return Fix(
        f"make {ast.unparse(made[-1].targets[0])} after DDP has given all ranks the same weights",
        diff=f"-{copies}\n {ast.unparse(wrapping)}\n+{copies}",
    )
