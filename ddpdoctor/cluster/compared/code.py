"""Hashes of the training's own files, so that hosts can compare them."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from ddpdoctor.cluster.compared.imported import imports, is_beside, scripts

FILES = 1000
LARGEST = 1 << 20  # bytes of a source file
IMPORTED = " (imported): "
"""What stands between the name of a package and that of its file."""
OF_A_PACKAGE, OF_ALL = 300, 900  # files
MADE = {"_version.py", "version.py"}
"""Files that a build makes anew on each host."""
LEFT_OUT = {"__pycache__", "node_modules", "site-packages", "venv"}


def hashes(named: Iterable[str]) -> dict[str, str]:
    """Return a hash of each Python file that is named, and of those beside and below it, by their names from there."""
    found: dict[str, str] = {}
    for path in scripts(named):
        found[path.name] = _hash(path)
        for each in _below(path.parent):
            if len(found) >= FILES:
                return found
            found[str(each.relative_to(path.parent))] = _hash(each)
        for package, files in packages(path).items():
            found |= {f"{package}{IMPORTED}{name}": _hash(each) for name, each in files.items()}
    return found


def packages(script: Path) -> dict[str, dict[str, Path]]:
    """Return the files of the packages that a script imports from elsewhere: by PYTHONPATH, or installed as editable.

    What lies beside the script is known already, and the versions of what is installed are compared otherwise. A large
    package is left out: a part of it says nothing.
    """
    found: dict[str, dict[str, Path]] = {}
    for name in sorted({each.partition(".")[0] for each, _ in imports(script)} - sys.stdlib_module_names):
        if is_beside(script, name):
            continue
        root = _root(name)
        if root is not None and root.is_dir():
            files = {str(each.relative_to(root)): each for each in _below(root) if each.name not in MADE}
        else:
            files = {} if root is None else {root.name: root}
        if 0 < len(files) <= OF_A_PACKAGE and sum(map(len, found.values())) <= OF_ALL - len(files):
            found[name] = files
    return found


def _root(name: str) -> Path | None:
    """Return the folder of a package, or the file of a module; None where it is installed, or not there."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return None
    if spec is None or not (spec.origin or spec.submodule_search_locations):
        return None
    folder = next(iter(spec.submodule_search_locations or ()), spec.origin) or ""
    path = Path(folder)
    if path.suffix not in {"", ".py"} or {"site-packages", "dist-packages"} & {*path.parts}:
        return None
    return path if path.exists() else None


def _below(folder: Path, depth: int = 3) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for each in entries:
        if each.suffix == ".py" and each.is_file() and each.stat().st_size <= LARGEST:
            yield each
        elif depth and each.is_dir() and not each.name.startswith(".") and each.name not in LEFT_OUT:
            yield from _below(each, depth - 1)


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return "unreadable"
