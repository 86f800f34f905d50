"""The files that a script imports, and that import it: where the missing thing can be done."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.literals import literals
from ddpdoctor.source.libraries import ACCELERATES, MONAI_TRAINS, NEVER_OURS, NOT_OURS, TRAINER
from ddpdoctor.source.text.folders import UP, Folders

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterable

    from ddpdoctor.source.text.defined import Held
    from ddpdoctor.source.text.tree import Tree

IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(.+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
WORD = re.compile(r"\w+")
STORE = re.compile(r"\.(\w+)[ \t]*=(?!=)")
ADDED = re.compile(r"\bsys\.path\.(?:append|insert)\(\s*(?:\d+\s*,\s*)?[\"'](\.\.?/?[^\"'\n]*|\w[^\"':\n]*)[\"']\s*\)")
LAUNCHES = (".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml")
MOST_FILES = 400  # that one script reaches
MOST_BYTES = 1_000_000
ROOTS = frozenset({".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg"})
"""What the uppermost folder of a project has."""


@dataclass
class Project:
    """What is known of the files around a script. Each file is read once, each folder listed once."""

    texts: dict[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    known: dict[str, list[tuple[str, list[str]]]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    trees: dict[str, Tree | None] = field(default_factory=dict)
    trains: dict[str, bool] = field(default_factory=dict)
    folders: Folders = field(default_factory=Folders)
    stored: dict[tuple[str, str], list[tuple[Tree, ast.expr]]] = field(default_factory=dict)
    called: dict[tuple[str, ast.FunctionDef, bool], list[tuple[Tree, ast.Call]]] = field(default_factory=dict)
    takers: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    idle: dict[str, dict[str, list[tuple[int, int]]]] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    by_name: dict[str, bool] = field(default_factory=dict)
    _imports: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    _reach: dict[str, frozenset[str]] = field(default_factory=dict)
    _said: dict[tuple[str, str], bool] = field(default_factory=dict)
    _stores: dict[str, frozenset[str]] = field(default_factory=dict)
    _words: dict[str, Counter[str]] = field(default_factory=dict)
    _launched: dict[str, bool] = field(default_factory=dict)

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """Who imports each file, of those that the user named."""
        found: dict[str, set[str]] = defaultdict(set)
        for other in self.others:
            for each in self.imports(other)[0]:
                found[each].add(other)
        return found

    def text(self, path: str) -> str:
        """Return a file's text without lines that are comments; empty where it cannot be read."""
        if path not in self.texts:
            self.texts[path] = without_comments(self.whole(path))
        return self.texts[path]

    def whole(self, path: str) -> str:
        """Return a file's text as it is; empty where it cannot be read, or is too large."""
        try:
            is_small = Path(path).stat().st_size <= MOST_BYTES
            return Path(path).read_text(encoding="utf-8", errors="replace") if is_small else ""
        except OSError:
            return ""

    def stores(self, path: str) -> frozenset[str]:
        """Return the names of the attributes that a file assigns."""
        if path not in self._stores:
            self._stores[path] = frozenset(STORE.findall(self.text(path)) if path.endswith(".py") else ())
        return self._stores[path]

    def words(self, path: str) -> Counter[str]:
        """Return how often each word occurs in a file, names among them: one is asked of for many files, and often."""
        if path not in self._words:
            self._words[path] = Counter(WORD.findall(self.text(path)))
        return self._words[path]

    def digest(self, path: str) -> str:
        """Return a digest of a file's text."""
        if path not in self.digests:
            self.digests[path] = hashlib.blake2b(self.text(path).encode(errors="replace")).hexdigest()
        return self.digests[path]

    def imports(self, path: str) -> tuple[frozenset[str], frozenset[str]]:
        """Return the files of the project that a file imports, and the names that lead nowhere."""
        if path not in self._imports:
            files, unknown = self._found(path)
            if "transformers" in unknown and not TRAINER.search(self.text(path)):
                unknown -= {"transformers"}  # models alone
            if "accelerate" in unknown and not ACCELERATES.search(self.text(path)):
                unknown -= {"accelerate"}  # helpers alone
            if "monai" in unknown and not MONAI_TRAINS.search(self.text(path)):
                unknown -= {"monai"}  # networks and transforms
            self._imports[path] = files, unknown
        return self._imports[path]

    def statements(self, path: str) -> list[tuple[str, list[str]]]:
        """Return what a file imports, as it says it: a module, and the names that are taken of it."""
        wanted: list[tuple[str, list[str]]] = []
        for match in IMPORT.finditer(self.text(path)):
            module, what, plain = match.groups()
            wanted += [(name.split()[0], []) for name in (plain or "").split(",") if name.split()]
            if module:
                wanted.append((module, re.findall(r"\w+", what)))
        return wanted

    def _found(self, path: str) -> tuple[frozenset[str], frozenset[str]]:
        files: set[str] = set()
        unknown: set[str] = set()
        for name, parts in self.known.get(path) or self.statements(path):
            root = name.partition(".")[0]
            if root in NEVER_OURS or (not root and _is_built(name, parts)):
                continue
            found = self.folders.files(path, name, parts)
            if not found and (not root or root not in NOT_OURS):
                found = self.folders.files(path, name, parts, self._added(path))
                unknown |= {root or name} if not found and self._is_used(path, name, parts) else set()
            files |= found
        return frozenset(files - {path}), frozenset(unknown)

    def files(self, path: str, module: str) -> set[str]:
        """Return the files that a file means by a module.

        A module beside the file comes before a library of its name (``datasets.py``), as Python looks it up.
        """
        root = module.partition(".")[0]
        if root in NEVER_OURS or (root in NOT_OURS and not self.folders.is_beside(path, root)):
            return set()
        return self.folders.files(path, module, [], self._added(path) if root not in NOT_OURS else ())

    def _added(self, path: str) -> tuple[str, ...]:
        """Return the folders that a file puts into Python's path, where they are written out."""
        text = self.text(path)
        return tuple(dict.fromkeys(ADDED.findall(text))) if "sys.path" in text else ()

    def _is_used(self, path: str, name: str, parts: list[str]) -> bool:
        """Whether what a file imports occurs in it once more; what is not seen to be idle counts as used."""
        names = parts or [name.rpartition(".")[2]]
        return any(self.words(path)[each] != 1 for each in names)

    def reach(self, path: str) -> frozenset[str]:
        """Return a file, those that it imports through any number of files, and those that import it with theirs."""
        if path not in self._reach:
            found = self.below(path)
            for other in self._users(path):
                found |= {other, *self.imports(other)[0]}
            self._reach[path] = frozenset(found)
        return self._reach[path]

    def below(self, path: str) -> set[str]:
        """Return a file, and those that it imports through any number of files."""
        return _followed(path, lambda each: self.imports(each)[0])

    def _users(self, path: str) -> set[str]:
        """Return the files that import a file, also by way of the packages that pass its names on."""
        found = set(self.importers.get(path, ()))
        for package in [each for each in found if each.endswith("__init__.py")]:
            found |= self.importers.get(package, set())
        return found

    def all_importers(self, path: str) -> set[str]:
        """Return the files that import a file, through any number of files."""
        return _followed(path, lambda each: self.importers.get(each, ())) - {path}

    def is_part_of(self, path: str, word: str) -> bool:
        """Whether a file in which a regular expression occurs imports a file, through any number of files."""
        return any(self.has(each, word) for each in sorted(self.all_importers(path)))

    def unknown(self, path: str) -> set[str]:
        """Return the names, in reach of a file, of what is imported and not known here."""
        return {name for each in self.reach(path) for name in self.imports(each)[1]}

    def says(self, path: str, word: str) -> bool:
        """Whether a regular expression occurs in a file or in reach of it, outside of whole-line comments."""
        return any(self.has(each, word) for each in self.reach(path))

    def others_say(self, path: str, word: str) -> bool:
        """Whether a regular expression occurs in reach of a file, in another one."""
        return any(self.has(each, word) for each in self.reach(path) - {path})

    def has(self, path: str, word: str) -> bool:
        """Whether a regular expression occurs in a file; asked once, since many files reach the same ones."""
        if (path, word) not in self._said:
            self._said[path, word] = _occurs(word, self.text(path))
        return self._said[path, word]

    def near(self, path: str) -> list[str]:
        """Return the Python files beside a file, and those near it that the user named."""
        folder = os.path.dirname(path) or "."
        base = os.path.normpath("/".join([os.path.abspath(folder), *[".."] * (UP - 1)]))
        beside = [f"{folder}/{each}" for each in self.folders.listed(folder) if each.endswith(".py")]
        named = (each for each, full in self._python if full.startswith(base))
        return [*dict.fromkeys(os.path.normpath(each) for each in (*beside, *named))]

    def mentions(self, path: str, word: str) -> bool:
        """Whether a word stands in a Python file beside a file, or in one that the user named, near it."""
        paths = self.near(path)
        if word.isidentifier():
            return any(word in self.words(each) for each in paths)
        return any(re.search(rf"\b{word}\b", self.text(each)) for each in paths)

    @cached_property
    def _python(self) -> list[tuple[str, str]]:
        """The Python files that the user named, and each from the root of the file system."""
        return [(each, os.path.abspath(each)) for each in self.others if each.endswith(".py")]

    def in_launches(self, path: str, word: str) -> bool:
        """Whether a regular expression occurs in a launch script that the user named, or in a README near a file."""
        if word not in self._launched:
            read = (self.text(each) for each in self.others if not each.endswith(".py"))
            self._launched[word] = any(re.search(word, each) for each in read)
        return self._launched[word] or re.search(word, self.beside(path, "README.md") or "") is not None

    def launches_beside(self, path: str) -> list[str]:
        """Return the texts of the shell scripts, and of the jobs in YAML, in the folder of a file."""
        folder = os.path.dirname(path) or "."
        names = sorted(each for each in self.folders.listed(folder) if each.endswith(LAUNCHES))
        return [self.text(os.path.normpath(f"{folder}/{each}")) for each in names]

    def beside(self, path: str, name: str) -> str | None:
        """Return the text of a file that a script names: from the script's folder, or one that is a few above it."""
        for folder in self.own_folders(path):
            place = os.path.normpath(f"{folder}/{name}")
            if os.path.isfile(place):
                return self.text(place)
        return None

    def own_folders(self, path: str) -> list[str]:
        """Return the folder of a file, and those above it up to the root of its project, or of what the user named.

        What is above those is about other things.
        """
        first = os.path.dirname(path) or "."
        folders = [os.path.normpath("/".join([first, *[".."] * up])) for up in range(UP)]
        roots = [each for each in folders if ROOTS & self.folders.listed(each)]
        roots += [each for each in (".", self._named) if each in folders]
        return folders[: folders.index(roots[0]) + 1] if roots else folders[:1]

    @cached_property
    def _named(self) -> str:
        """The folder that holds all files that the user named."""
        folders = [os.path.dirname(each) or "." for each in self.others]
        try:
            return os.path.normpath(os.path.commonpath(folders))
        except ValueError:  # none, or on several drives
            return ""


BUILT = re.compile(r"(?:^|_)(?:C|cpp|cuda|ext|kernels?|version|version_info)$")
"""Names of modules that the build of a package makes: compiled operators of the model, and its version."""


def _is_built(name: str, parts: list[str]) -> bool:
    """Whether a file imports from its own package what is made when that is built, which exchanges nothing."""
    module = name.lstrip(".").rpartition(".")[2]
    return BUILT.search(module) is not None if module else bool(parts) and all(map(BUILT.search, parts))


def _followed(path: str, to: Callable[[str], Iterable[str]]) -> set[str]:
    """Return a file, and those that lead on from it, through any number of files."""
    found: set[str] = set()
    waiting = [path]
    while waiting and len(found) < MOST_FILES:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += sorted(to(each))
    return found


_needs = cache(literals)


def _occurs(word: str, text: str) -> bool:
    """Whether a regular expression occurs in a text; it is tried where something does that it cannot match without."""
    needed = _needs(word)
    return (not needed or any(each in text for each in needed)) and re.search(word, text) is not None


def without_comments(text: str) -> str:
    """Return a text without the lines that are comments."""
    return COMMENT.sub("", text)
