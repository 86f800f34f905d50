"""Lines of a script, and of what it imports from beside it, that call something by its name."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.check import Joined, LinesSampled, StepFingerprinted, Training, Tree, last_name, tree_of

MOST = 60  # files that are read


@dataclass(frozen=True, slots=True)
class SetAt:
    """A call: where it stands, and its line as it is written; ``call`` is all of it, in one line."""

    file: str
    line: int
    text: str
    call: str

    @property
    def without(self) -> str:
        """A diff that takes the line away; empty where more would have to go."""
        return f"-{self.text}" if self.text.strip() == self.call else ""

    def instead(self, other: str) -> str:
        """Return a diff that calls this instead; empty where it is not all of the line."""
        indent = self.text[: len(self.text) - len(self.text.lstrip())]
        return f"-{self.text}\n+{indent}{other}" if self.text.strip() == self.call else ""


def set_at(training: Training, names: Collection[str]) -> list[SetAt]:
    """Return the calls of functions with these names in the files that train, and in those that they import."""
    return [
        SetAt(file, call.lineno, linecache.getline(file, call.lineno).rstrip(), ast.unparse(call))
        for file in files_of(training)
        for call in tree_of(file).of(ast.Call)
        if last_name(call.func) in names
    ]


def files_of(training: Training) -> list[str]:
    """Return the files that train: of the ranks' first lines and steps, and what they import from folders beside."""
    sites = [each.site for each in (*training.of(Joined), *training.of(StepFingerprinted)) if each.site is not None]
    files = {each.file for each in sites}
    for told in training.by_rank(LinesSampled).values():
        files |= {file for line in told.sampled for file in (line.file, line.inner_file)}
    return with_imported(files)


def with_imported(files: Collection[str]) -> list[str]:
    """Return files and what they import from folders beside them, and so on."""
    found: dict[str, None] = {}
    waiting = sorted(files)
    while waiting and len(found) < MOST:
        file = waiting.pop(0)
        if file in found or not Path(file).is_file():
            continue
        found[file] = None
        waiting += _imported(tree_of(file), Path(file).parent)
    return list(found)


def _imported(tree: Tree, folder: Path) -> list[str]:
    """Return the files beside a file that it imports; those of a package from its folder on."""
    names = [each.name for node in tree.of(ast.Import) for each in node.names]
    for node in tree.of(ast.ImportFrom):
        base = f"{node.module}." if node.module else ""
        names += [node.module or "", *(f"{base}{each.name}" for each in node.names)]
    roots = [folder, *folder.parents[:2]]
    tried = (root.joinpath(*name.split(".")) for name in names if name for root in roots)
    return [str(path) for each in tried for path in (each.with_suffix(".py"), each / "__init__.py") if path.is_file()]
