"""The folders that a script's imports lead to. Each is listed once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

UP = 4  # folders above a file that its imports can start from
ADDED = ("lib", "src")
"""Folders that scripts put into Python's path."""


@dataclass
class Folders:
    """What stands in folders, and the files that an import of a file in them names."""

    _names: dict[str, frozenset[str]] = field(default_factory=dict)

    def files(self, path: str, name: str, parts: list[str], added: tuple[str, ...] = ()) -> set[str]:
        """Return the files that an import can name: from the file's folder, or one that is a few above it.

        ``added`` are folders that the file puts into Python's path, as it names them.
        """
        bare = name.lstrip(".")
        level = len(name) - len(bare)
        folder = os.path.dirname(path)
        for up in range(level - 1 if level else 0, level or UP + 1):
            base = os.path.normpath("/".join([folder or ".", *[".."] * up, *bare.split(".")]))
            candidates = [*(f"{base}/{part}" for part in parts), *([base] if bare else [])]
            found = {there for each in candidates for there in self._modules(each)}
            if found:
                return found
        return set() if level else self._by_added_path(folder, bare, parts, added)

    def is_beside(self, path: str, root: str) -> bool:
        """Whether a module stands in the folder of a file."""
        here = self.listed(os.path.dirname(path) or ".")
        return f"{root}.py" in here or root in here

    def listed(self, folder: str) -> frozenset[str]:
        """Return the names of what stands in a folder; none where it cannot be read."""
        if folder not in self._names:
            try:
                self._names[folder] = frozenset(os.listdir(folder))
            except OSError:
                self._names[folder] = frozenset()
        return self._names[folder]

    def _by_added_path(self, folder: str, bare: str, parts: list[str], own: tuple[str, ...]) -> set[str]:
        """Return the files of a module that stands in a folder which scripts put into Python's path: lib, or src."""
        usual = ("/".join([*[".."] * up, added]) for up in range(UP) for added in ADDED)
        for added in (*own, *usual):
            base = os.path.normpath("/".join([folder or ".", added, *bare.split(".")]))
            candidates = [*(f"{base}/{part}" for part in parts), base]
            found = {there for each in candidates for there in self._modules(each)}
            if found:
                return found
        return set()

    def _modules(self, base: str) -> list[str]:
        """Return the file of a module or package that has this path; of a package without a file, all that is in it."""
        folder, _, name = base.rpartition("/")
        if f"{name}.py" in self.listed(folder or "."):
            return [f"{base}.py"]
        if name not in self.listed(folder or "."):
            return []
        within = self.listed(base)
        if "__init__.py" in within:
            return [f"{base}/__init__.py"]
        return [f"{base}/{each}" for each in within if each.endswith(".py")]
