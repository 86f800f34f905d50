"""A loss that was never a number, where the weights were given memory and no values."""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpdoctor.check import Evidence, Finding, Fix, Place, tree_of

from ..._scripts.emptied import emptied

VALUES = Fix(
    "give the weights values behind to_empty: initialise them, or load a checkpoint",
    diff=" model.to_empty(device=device)\n+for module in model.modules():\n"
    '+    if hasattr(module, "reset_parameters"):\n+        module.reset_parameters()',
)


def without_values(finding: Finding) -> Finding:
    """Return a finding of a loss with its cause, where the file that computes it has one; else as it is."""
    file = finding.place.file
    call = emptied(tree_of(file)) if file else None
    if call is None:
        return finding
    return replace(
        finding,
        message=f"the weights have memory and no values, since {ast.unparse(call.func)} gives none: {finding.message}",
        evidence=(Evidence(ast.unparse(call), "values behind it", f"{file}:{call.lineno}"), *finding.evidence),
        fix=VALUES,
        place=Place(file=file, line=call.lineno),
    )
