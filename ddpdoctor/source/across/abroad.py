"""Functions and classes that a file imports from others of its project."""

from __future__ import annotations

import ast
import re
from functools import partial
from typing import TYPE_CHECKING

from ddpdoctor.source.across.heirs import passes_on
from ddpdoctor.source.across.joining import asked, called, factories, makes_group, meanings, run_by, says_it_joins
from ddpdoctor.source.across.takers import DEPTH, STAR, takers, takes_all
from ddpdoctor.source.libraries import DATA_SETS, NOT_OURS, OF_DATA_SETS
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.syntax import NO_PYTHON
from ddpdoctor.source.text.tree import Tree
from ddpdoctor.source.values.bound import OPTIONS
from ddpdoctor.source.values.keyed import stored_under

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.across.project import Project
    from ddpdoctor.source.text.tree import Defined


def definition(project: Project, path: str, name: str, depth: int = DEPTH) -> tuple[Tree, Defined] | None:
    """Return what the project defines under a dotted name that a file imports, and the tree that it stands in.

    None where it is not the project's, or where it is not certain which it is.
    """
    module, _, last = name.rpartition(".")
    if not last or not depth:
        return None
    files = project.files(path, module or ".")
    file = next(iter(files)) if len(files) == 1 else None
    if file is None or not (last in project.words(file) or project.has(file, STAR.pattern)):
        return None
    tree = tree_of(project, file)
    found = tree.bindings.get(tree.module, {}).get(last, []) if tree is not None else []
    if tree is not None and not found and tree.starred is not None and (taken := tree.starred(last)) is not None:
        return definition(project, file, taken, depth - 1)
    if tree is None or len(found) != 1:
        return None
    if found[0].path:
        return definition(project, file, found[0].path, depth - 1)
    node = found[0].node
    return (tree, node) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else None


def tree_of(project: Project, path: str) -> Tree | None:
    """Return the tree of a file of the project, which is made once; None where it is no Python."""
    if path not in project.trees:
        project.trees[path] = None
        try:
            project.trees[path] = Tree(ast.parse(project.whole(path)))
        except NO_PYTHON:
            return None
        link(project, path, project.trees[path])
    return project.trees[path]


def link(project: Project, path: str, tree: Tree | None) -> None:
    """Let a tree find what its file imports."""
    if tree is not None:
        project.trees[path] = tree
        tree.abroad = partial(definition, project, path)
        tree.callers = partial(callers, project, path)
        tree.relays = partial(relays, project, path)
        tree.stored = partial(stored, project, path)
        tree.keyed = partial(keyed, project, path)
        if any(each.names[0].name == "*" for each in tree.of(ast.ImportFrom)):
            tree.starred = partial(starred, project, path)


def starred(project: Project, path: str, name: str, depth: int = DEPTH) -> str | None:
    """Return the full name of what a file takes by ``from helpers import *``; None where no such file has it."""
    if name.startswith("_") or not depth:
        return None
    tree = tree_of(project, path)
    for each in reversed(tree.of(ast.ImportFrom) if tree is not None else []):
        if each.names[0].name != "*":
            continue
        module = "." * each.level + (each.module or "")
        if module == DATA_SETS and name in OF_DATA_SETS:
            return f"{module}.{name}"
        files = project.files(path, module)
        there = next(iter(files)) if len(files) == 1 else None
        if there is None or there == path or (away := tree_of(project, there)) is None:
            continue
        found = away.bindings.get(away.module, {}).get(name, [])
        if len(found) == 1 and _is_exported(away, name):
            taken = found[0].path
            return taken if taken and not taken.startswith(".") else f"{module}.{name}"
        if not found and (further := starred(project, there, name, depth - 1)) is not None:
            return further if further.partition(".")[0] in NOT_OURS else f"{module}.{name}"
    return None


def _is_exported(tree: Tree, name: str) -> bool:
    """Whether a module hands a name to those that take all of it."""
    listed = tree.bindings.get(tree.module, {}).get("__all__", [])
    return not listed or any(each.value is not None and repr(name) in ast.unparse(each.value) for each in listed)


def stored(project: Project, path: str, name: str) -> list[tuple[Tree, ast.expr]]:
    """Return what the files in reach of one, itself left out, store in an option of this name, each with its tree."""
    if (path, name) not in project.stored:
        files = [each for each in sorted(project.reach(path) - {path}) if name in project.stores(each)]
        trees = [tree for each in files if (tree := tree_of(project, each)) is not None]
        project.stored[path, name] = [
            (tree, given)
            for tree in trees
            for (_, text), bindings in tree.attributes.items()
            if text.endswith(f".{name}") and any(OPTIONS.match(each) for each in text.split(".")[:-1])
            for binding in bindings
            if (given := binding.value if binding.value is not None else binding.whole) is not None
        ]
    return project.stored[path, name]


def keyed(project: Project, path: str, key: str) -> list[tuple[Tree, ast.expr]]:
    """Return what the files in reach of one, itself left out, store under a key in a dict of options."""
    name = f"[{key}]"
    if (path, name) not in project.stored:
        stores = re.compile(rf"\[['\"]{key}['\"]\][^\n=]*=(?!=)")
        files = [each for each in sorted(project.reach(path) - {path}) if stores.search(project.text(each))]
        trees = [tree for each in files if (tree := tree_of(project, each)) is not None]
        project.stored[path, name] = [found for tree in trees for found in stored_under(tree, key)]
    return project.stored[path, name]


HEIRS = 2  # classes that inherit from each other


def callers(project: Project, path: str, function: ast.FunctionDef) -> list[tuple[Tree, ast.Call]]:
    """Return the calls of a function of a file in those files of the project that train in several ranks.

    A function that is handed to ``torch.multiprocessing.spawn`` is called there. A method is called where an object is
    that was made of its class alone.
    """
    return _called_by(project, path, function, of_trainings=True)


def _called_by(
    project: Project, path: str, function: ast.FunctionDef, *, of_trainings: bool
) -> list[tuple[Tree, ast.Call]]:
    key = path, function, of_trainings
    if key not in project.called:
        project.called[key] = _callers(project, path, function, of_trainings=of_trainings)
    return project.called[key]


def relays(project: Project, path: str, function: ast.FunctionDef) -> list[tuple[Tree, ast.Call]]:
    """Return the calls of a function of a file in functions of other files, which do not train themselves.

    Those of a package of data sets, say, one of which makes what its name is given (``create("cifar10")``).
    """
    found = _called_by(project, path, function, of_trainings=False)
    return [(tree, call) for tree, call in found if tree.function(call) is not None]


def _callers(
    project: Project, path: str, function: ast.FunctionDef, *, of_trainings: bool
) -> list[tuple[Tree, ast.Call]]:
    home = tree_of(project, path)
    if home is not None and isinstance(owner := home.parents.get(function), ast.ClassDef):
        return _of_method(project, path, owner, function.name, of_trainings=of_trainings)
    found = _handed_to(home, function) if home is not None and of_trainings else []
    for other in sorted(takers(project, path, function.name)):
        if trains(project, other) != of_trainings:
            continue
        tree = tree_of(project, other)
        for call in tree.of(ast.Call) if tree is not None else ():
            name = (resolve(tree, called(tree, call)) or "") if tree is not None else ""
            if tree is not None and name.endswith(function.name):
                there = definition(project, other, name)
                is_it = there is not None and there[1] is function
                found += [(tree, call)] if is_it or (name == function.name and takes_all(project, other, path)) else []
    return found


def _handed_to(home: Tree, function: ast.FunctionDef) -> list[tuple[Tree, ast.Call]]:
    """Return where a helper of another file, which makes the group, calls a function that it is handed at the top."""
    found: list[tuple[Tree, ast.Call]] = []
    for node in home.read.get(function.name, ()):
        call = home.parents[node]
        if not isinstance(call, ast.Call) or node not in call.args or home.abroad is None:
            continue
        tree, starter = home.abroad(resolve(home, call.func) or "") or (None, None)
        if tree is None or not isinstance(starter, ast.FunctionDef) or not makes_group(tree, starter):
            continue
        names = [each.arg for each in (*starter.args.posonlyargs, *starter.args.args)]
        place = call.args.index(node)
        reads = tree.read.get(names[place], ()) if place < len(names) else ()
        runs = [(each, one) for one in reads if isinstance(each := tree.parents[one], ast.Call) and each.func is one]
        found += [(tree, each) for each, _ in runs if tree.function(each) is starter]
    return found


def trains(project: Project, path: str) -> bool:
    """Whether a file trains in several ranks: it says so itself, or calls a helper of the project that joins them."""
    if path not in project.trains:
        joins = says_it_joins(project.text(path))
        project.trains[path] = joins or (project.says(path, "init_process_group") and _joins_by_helper(project, path))
    return project.trains[path]


def _joins_by_helper(project: Project, path: str) -> bool:
    tree = tree_of(project, path)
    called = {name for call in tree.of(ast.Call) if (name := resolve(tree, call.func))} if tree is not None else set()
    for name in sorted(each for each in called if "." in each and not each.startswith("torch.")):
        found = definition(project, path, name)
        function = run_by(*found) if found is not None else None
        if found is not None and function is not None and makes_group(found[0], function):
            return True
        if tree is not None and found is not None and isinstance(found[1], ast.ClassDef):
            methods = [each for each in found[1].body if isinstance(each, ast.FunctionDef)]
            joining = {each.name for each in methods if makes_group(found[0], each)}
            made = [each for each in tree.of(ast.Call) if joining and resolve(tree, each.func) == name]
            if any(asked(tree, call, method) for call in made for method in joining):
                return True
    return False


def _of_method(  # noqa: PLR0913 - what is asked of the heirs as well
    project: Project, path: str, owner: ast.ClassDef, method: str, levels: int = HEIRS, *, of_trainings: bool = True
) -> list[tuple[Tree, ast.Call]]:
    found = []
    for other in sorted(takers(project, path, owner.name)):
        tree = tree_of(project, other) if trains(project, other) == of_trainings else None
        for call in tree.of(ast.Call) if tree is not None else ():
            names = (
                [each for each in meanings(tree, call.func) if each.endswith(owner.name)] if tree is not None else []
            )
            if tree is None or not any(_is_defined_as(project, other, each, owner) for each in names):
                continue
            found += [(tree, each) for each in ([call] if method == "__init__" else asked(tree, call, method))]
    home = tree_of(project, path) if method != "__init__" else None
    for each in factories(home, owner) if home is not None else ():
        made = _called_by(project, path, each, of_trainings=of_trainings)
        found += [(tree, call) for tree, one in made for call in asked(tree, one, method)]
    for other, heir in _heirs(project, path, owner, method) if levels else ():
        found += _of_method(project, other, heir, method, levels - 1, of_trainings=of_trainings)
    return found


def _is_defined_as(project: Project, path: str, name: str, owner: ast.ClassDef) -> bool:
    there = definition(project, path, name)
    return there is not None and there[1] is owner


def _heirs(project: Project, path: str, owner: ast.ClassDef, method: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the classes of other files in whose objects this method of a class runs, and their files."""
    for other in sorted(takers(project, path, owner.name)):
        tree = tree_of(project, other)
        for heir in tree.of(ast.ClassDef) if tree is not None else ():
            names = [resolve(tree, each) or "" for each in heir.bases] if tree is not None else []
            found = [definition(project, other, each) for each in names if each.endswith(owner.name)]
            is_one = any(each is not None and each[1] is owner for each in found)
            if tree is not None and is_one and passes_on(tree, heir, method):
                yield other, heir
