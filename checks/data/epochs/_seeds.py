"""What seeds the order of a sampler that the script defines, as the source says it."""

from __future__ import annotations

import ast

from ddpdoctor.check import Fix, last_name, tree_of

SEEDS = {"manual_seed", "Random", "RandomState", "default_rng", "seed", "SeedSequence"}


def says_epoch(file: str, line: int) -> bool:
    """Whether what seeds a generator at a line holds an epoch."""
    calls = [each for each in tree_of(file).of(ast.Call) if each.lineno == line and last_name(each.func) in SEEDS]
    return any("epoch" in ast.unparse(given) for each in calls for given in each.args)


def seeded(file: str, kind: str) -> int | None:
    """Return the line of ``__iter__`` of a class, or of a method that this one calls, that seeds a generator."""
    for node in tree_of(file).of(ast.ClassDef):
        if node.name == kind:
            methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
            within = _calls(methods.get("__iter__"))
            own = {ast.unparse(each.func).removeprefix("self.") for each in within}
            calls = within + [each for name, method in methods.items() if name in own for each in _calls(method)]
            return next((each.lineno for each in calls if last_name(each.func) in SEEDS), None)
    return None


def told(file: str, kind: str) -> Fix:
    """Return how a sampler that has the epoch in its seed is told it."""
    methods = [node.name for each in tree_of(file).of(ast.ClassDef) if each.name == kind
               for node in each.body if isinstance(node, ast.FunctionDef)]  # fmt: skip
    how = "sampler.set_epoch(epoch)" if "set_epoch" in methods else "sampler.epoch = epoch"
    return Fix("tell the sampler the epoch", diff=f" for epoch in range(epochs):\n+    {how}")


def _calls(method: ast.FunctionDef | None) -> list[ast.Call]:
    return [each for each in ast.walk(method) if isinstance(each, ast.Call)] if method else []
