"""What the training's own scripts import, as far as their texts tell."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from ddpdoctor.source.text.syntax import NO_PYTHON


def scripts(named: Iterable[str]) -> Iterator[Path]:
    """Yield the Python files among the files that were named."""
    for path in map(Path, named):
        if path.suffix == ".py" and path.is_file():
            yield path


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each module that a file imports, and whether nothing stands around that import; none where it is no Python.

    Of ``from package import name`` the name can be a module, too.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, *NO_PYTHON):
        return
    always = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, id(node) in always) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, id(node) in always
            yield from ((f"{node.module}.{each.name}", id(node) in always) for each in node.names)


def is_beside(script: Path, name: str) -> bool:
    """Whether a package or a module lies beside a script, which imports that and no other of its name."""
    return (script.parent / name).is_dir() or (script.parent / f"{name}.py").exists()
