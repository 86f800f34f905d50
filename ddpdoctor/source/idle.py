"""What nobody calls: functions and classes that are defined within reach of a file, and named nowhere else there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING

from ddpdoctor.source.across.abroad import tree_of
from ddpdoctor.source.text.defined import Held, Part
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.source.vocabulary import GROUPS, INIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddpdoctor.source.across.project import Project
    from ddpdoctor.source.text.tree import Tree

BY_NAME = re.compile(
    r"\b(?:globals|locals|vars)\(\)|\bimportlib\b|\bimport_module\b|\binstantiate\b|(?<![\w.])eval\(|\b__import__\b|\bfire\b"
    r"|\bsys\.modules\b"
)
"""What can call a function whose name stands nowhere in the source."""
TAKEN = re.compile(r"\bgetattr\(\s*(\w+)[\w.]*\s*,\s*(?![\"'])")
"""What takes something out of an object, or of a module, by a name that is not written out."""
IMPORTS = re.compile(r"^[ \t]*(?:from[ \t]+[.\w]+[ \t]+)?import\b(?:[^\n(]*\([^)]*\)|[^\n]*)", re.MULTILINE)
ENTRIES = re.compile(r"^__|main|train|run|fit|work|launch|entry|cli|eval|test|valid", re.IGNORECASE)
"""Names of what a command that is installed can begin with, and of what it does then; and what Python calls itself."""
WORD = re.compile(r"\w+")
LOGGER = "logging.getLogger"
MOST = 60  # files


def idle_lines(project: Project, path: str) -> dict[str, list[tuple[int, int]]]:
    """Return the lines, of each file in reach of one, of functions and classes that nobody there names.

    What only such functions name is among them. Of a file that runs nothing, and that no other imports, somebody calls
    the parts who is not seen. Empty where code can be called whose name is not written out, and
    where there is too much to look through.
    """
    if path not in project.idle:
        project.idle[path] = dict(_found(project, path))
    return project.idle[path]


def idle_name(project: Project, path: str, line: int) -> str | None:
    """Return the name of the function or class that a line stands in, where nobody in reach of its file names it."""
    held = _held(project, path)
    parts = [each for each in held.parts if each.first <= line <= each.last]
    if all(held.words[each.name] > each.words[each.name] for each in parts):
        return None
    idle = idle_lines(project, path).get(path, ())
    return next((each.name for each in parts if (each.first, each.last) in idle), None)


def _found(project: Project, path: str) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    files = [each for each in project.reach(path) if each.endswith(".py")]
    if len(files) > MOST or any(_calls_by_name(project, each) for each in files):
        return
    named = Counter[str]()
    for file in files:
        named.update(_held(project, file).words)
    used = {there for each in files for there in project.imports(each)[0]}
    waiting = [
        part for each in files if each in used or _held(project, each).runs for part in _held(project, each).parts
    ]
    idle: list[Part] = []
    while found := [each for each in waiting if named[each.name] == each.words[each.name]]:
        idle += found
        waiting = [each for each in waiting if each not in found and not any(_holds(one, each) for one in found)]
        for part in _outermost(found):
            named.subtract(part.words)
    for file in {each.path for each in idle}:
        yield file, [(each.first, each.last) for each in idle if each.path == file]


def _held(project: Project, path: str) -> Held:
    """Return what a file defines and names; it is in reach of many, and read once."""
    if path not in project.held:
        text = project.text(path)
        tree = tree_of(project, path)
        project.held[path] = Held(
            tuple(_parts(project, path)),
            Counter(WORD.findall(IMPORTS.sub("", text))),
            tree is not None and any(_runs(project, path, tree, each) for each in tree.module.body),
        )
    return project.held[path]


def _calls_by_name(project: Project, path: str) -> bool:
    """Whether a file can call functions whose names it does not write out: those of modules that it imports."""
    if path not in project.by_name:
        text = project.text(path)
        imported = set(WORD.findall(" ".join(IMPORTS.findall(text))))
        is_free = BY_NAME.search(text) is not None or any(each in imported for each in TAKEN.findall(text))
        project.by_name[path] = is_free
    return project.by_name[path]


def _holds(outer: Part, inner: Part) -> bool:
    return outer.path == inner.path and outer.first < inner.first and inner.last <= outer.last


def _outermost(parts: list[Part]) -> Iterable[Part]:
    return (each for each in parts if not any(_holds(one, each) for one in parts))


def _parts(project: Project, path: str) -> Iterator[Part]:
    """Yield what a file defines, and the methods of classes that inherit nothing: nobody else calls those."""
    tree = tree_of(project, path)
    if tree is None:
        return
    lines = project.text(path).split("\n")
    for node in tree.module.body:
        is_entry = isinstance(node, FUNCTIONS) and ENTRIES.search(node.name)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.decorator_list and not is_entry:
            yield _part(node, path, lines)
        if isinstance(node, ast.ClassDef) and not node.bases and not node.keywords:
            methods = (each for each in node.body if isinstance(each, FUNCTIONS) and not each.decorator_list)
            yield from (_part(each, path, lines) for each in methods if not ENTRIES.search(each.name))


def _runs(project: Project, path: str, tree: Tree, statement: ast.stmt) -> bool:
    """Whether a statement of a file calls something when the file is run that is no mere set-up, as ``logging`` is."""
    nodes = () if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) else ast.walk(statement)
    told = [each for each in nodes if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    called = [part.func for each in told for part in ast.walk(each) if isinstance(part, ast.Call)]
    return not all(_is_set_up(project, path, tree, each) for each in called)


def _is_set_up(project: Project, path: str, tree: Tree, called: ast.expr) -> bool:
    """Whether a call is of Python or of a library, which a module that others import makes as well.

    Joining the other ranks is no set-up: that is what a training does.
    """
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        made = [each.value for each in tree.lookup(called.value.id, called)]
        if made and all(isinstance(each, ast.Call) and resolve(tree, each.func) == LOGGER for each in made):
            return True
    name = resolve(tree, called)
    if name is None or name in {INIT, *GROUPS} or name.startswith("."):
        return False
    return not (project.files(path, name.rpartition(".")[0]) if "." in name else ())


def _part(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, path: str, lines: list[str]) -> Part:
    first, last = node.lineno, node.end_lineno or node.lineno
    text = IMPORTS.sub("", "\n".join(lines[first - 1 : last]))
    return Part(node.name, path, first, last, Counter(WORD.findall(text)))
