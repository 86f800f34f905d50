"""What the source says of an attribute: where it is updated, and whether samples are computed with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import last_name, tree_of

from ._communicating import concerning, exchanges
from ._statements import (
    Function,
    attributes,
    bare,
    calls,
    chain,
    given,
    has_name,
    looked_at,
    of_functions,
    said,
    targets,
    targets_of,
    used,
)

PAIRS = {"cdist", "matmul", "mm", "bmm", "einsum", "linear", "sub", "div", "mul", "cosine_similarity", "batch_norm"}
BUILDS = {"__init__", "__post_init__", "setup", "reset", "reset_parameters"}
COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try)


class Attribute:
    """An attribute of the class ``kind`` that a function reaches by ``path``, in the files given."""

    def __init__(self, path: str, kind: str, files: tuple[str, ...]) -> None:
        """Read the files."""
        above, _, self.name = path.rpartition(".")
        self.owner = above.rpartition(".")[2]
        self.trees = {file: tree_of(file).module for file in dict.fromkeys(files) if file}
        self.classes = [
            (file, node)
            for file, tree in self.trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and node.name == kind.rpartition(".")[2]
        ][:1]
        self.beside = {
            each.attr
            for _, own in self.classes
            for node in ast.walk(own)
            if isinstance(node, (ast.Assign, ast.AnnAssign))
            for each in targets(node)
            if isinstance(each, ast.Attribute)
        }
        """The attributes of its class: where one of them is named, the object is not meant as a whole."""
        self.bases = {"self", self.owner}
        for file, own in self.classes:
            if self._is_the_only_one(file, own):
                outside = [each for each in self.trees[file].body if isinstance(each, Function) and self._reaches(each)]
                self.bases |= {name for each in outside for name in given(each)}

    def written(self) -> tuple[tuple[str, int] | None, bool]:
        """Return the line where it is updated from what it was, and whether something else is put in its place.

        Nothing else may do so but what builds the object.
        """
        updated, replaced = None, False
        for file, function, node in self._statements():
            if function.name in BUILDS:
                continue
            if self._updates(node):
                updated = updated or (file, node.lineno)
            elif isinstance(node, ast.Assign) and any(map(self._is_it, node.targets)):
                replaced = True
        return updated, replaced

    def reduces(self) -> bool | None:
        """Whether it is updated by what a function such as ``mean`` makes of samples; None where that is not seen.

        What it is computed from may be an attribute beside it that is updated so.
        """
        found: list[bool | None] = []
        beside: set[str] = set()
        for _, function, node in self._statements():
            if function.name not in BUILDS and self._updates(node):
                found.append(said(node, function))
                beside |= attributes(node)
        for _, function, node in self._statements():
            if function.name not in BUILDS and not isinstance(node, COMPOUND) and targets_of(node) & beside:
                found.append(said(node, function))
        return True if True in found else None if None in found else False

    def assigned(self) -> tuple[str, int] | None:
        """Return the last line that gives it a value, anywhere in the files but where the object is built."""
        found = None
        for file, tree in self.trees.items():
            built = {id(each) for node in ast.walk(tree) if isinstance(node, Function) and node.name in BUILDS
                     for each in ast.walk(node)}  # fmt: skip
            lines = [node.lineno for node in self._assignments(tree) if id(node) not in built]
            found = found or ((file, max(lines)) if lines else None)
        return found

    def filled(self) -> tuple[str, int] | None:
        """Return the first line of its class that puts something in a part of it."""
        for file, function, node in self._statements():
            parts = [each for each in getattr(node, "targets", ()) if isinstance(each, ast.Subscript)]
            if function.name not in BUILDS and any(self._is_it(bare(each)) for each in parts):
                return file, node.lineno
        return None

    def computed(self) -> tuple[str, int] | None:
        """Return the first line of its class that gives it a value."""
        lines = [(file, node.lineno) for file, kind in self.classes for node in self._assignments(kind)]
        return min(lines, default=None)

    def _assignments(self, tree: ast.AST) -> list[ast.stmt]:
        name = self.name.partition("[")[0]
        statements = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))]
        return [node for node in statements if any(last_name(each) == name for each in targets(node))]

    def meets_samples(self) -> bool:
        """Whether an expression computes something else with it, which is neither kept in the object nor printed."""
        for tree in self.trees.values():
            for node in used(tree):
                if isinstance(node, ast.BinOp):
                    sides = [node.left, node.right]
                elif isinstance(node, ast.Call) and last_name(node.func) in PAIRS:
                    sides = node.args
                else:
                    continue
                ours = [any(map(self._is_it, looked_at(side, self.name))) for side in sides]
                if any(ours) and any(has_name(side) for side, own in zip(sides, ours, strict=True) if not own):
                    return True
        return False

    def is_exchanged(self) -> bool:
        """Whether methods of its class communicate that are about it, or something that bears its name."""
        own = [each for _, kind in self.classes for each in concerning(kind, self.name, self._updates)]
        own += [each for _, function, node in self._statements() if self._updates(node) for each in calls(function)]
        for tree in self.trees.values():
            own += [each for each in calls(tree) if self._is_named(each)]
            through = [node for node in ast.walk(tree) if isinstance(node, ast.For) and self._is_named(node.iter)]
            own += [each for loop in through for each in calls(loop)]
        return any(map(exchanges, own))

    def _is_named(self, node: ast.AST) -> bool:
        others = {
            id(each.value)
            for each in ast.walk(node)
            if isinstance(each, ast.Attribute) and each.attr in self.beside - {self.name}
        }
        names = {last_name(each) for each in ast.walk(node) if id(each) not in others}
        return bool(names & {self.name, self.owner} - {"self", "model", ""})

    def _statements(self) -> Iterator[tuple[str, Function, ast.stmt]]:
        """Yield those of its class, and those of functions that are given the object, or find it by its name."""
        for file, kind in self.classes:
            yield from ((file, each, node) for each, node in of_functions(kind))
            if self._is_the_only_one(file, kind):
                yield from ((file, each, node) for each, node in of_functions(self.trees[file]) if self._reaches(each))

    def _is_the_only_one(self, file: str, kind: ast.ClassDef) -> bool:
        """Whether no other class of the file has an attribute of this name."""
        others = [each for each in self.trees[file].body if isinstance(each, ast.ClassDef) and each is not kind]
        return self.name not in {
            node.attr for each in others for node in ast.walk(each) if isinstance(node, ast.Attribute)
        }

    def _reaches(self, function: Function) -> bool:
        """Whether a function has it, of an object that it is given or that bears the name by which it was reached."""
        names = {*given(function), self.owner}
        return any(
            isinstance(each, ast.Attribute) and each.attr == self.name and last_name(each.value) in names
            for each in ast.walk(function)
        )

    def _updates(self, node: ast.stmt) -> bool:
        match node:
            case ast.AugAssign(target=target):
                return self._is_it(bare(target))
            case ast.Assign(targets=[ast.Tuple(elts=takers)], value=ast.Tuple(elts=parts)) if len(takers) == len(parts):
                return any(self._updates(ast.Assign([each], part)) for each, part in zip(takers, parts, strict=True))
            case ast.Assign(targets=targets, value=value):
                mine = any(self._is_it(bare(each)) for each in targets)
                return mine and isinstance(value, (ast.BinOp, ast.Call)) and self._blends(value)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
                return name.endswith("_") and any(self._is_it(each) for each in chain(node.value))
        return False

    def _blends(self, value: ast.expr) -> bool:
        """Whether a value is a sum or a product with what was there: what a network makes of it is a state."""
        if isinstance(value, ast.Call):
            return last_name(value.func) in {"lerp", "add", "mul"} and any(
                self._is_it(each) for each in ast.walk(value)
            )
        return any(self._is_it(each) for each in ast.walk(value))

    def _is_it(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Attribute) or node.attr != self.name:
            return False
        return last_name(node.value) in self.bases
