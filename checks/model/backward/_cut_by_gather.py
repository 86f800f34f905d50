"""Losses that are made of nothing but what a gather gives, which carries no gradient, as the source says it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpdoctor.check import Site, Tree, dotted, keyword, last_name, resolve, tree_of, withs_around

from ..._evaluation.metrics import part_around
from ..._scripts.own_files import own_files

GATHERS = {"all_gather", "gather", "gather_for_metrics"}
INTO = {"all_gather", "all_gather_into_tensor", "_all_gather_base"}
"""Those of torch that fill what they are given first."""
WITH_GRADIENTS = "torch.distributed.nn"
CUTS = {"detach", "item", "tolist", "numpy", "argmax", "no_grad"}
OF_A_LOSS = re.compile(r"loss|criterion|objective", re.IGNORECASE)
SYNCED = 2  # position of ``sync_grads``
DEEP = 30  # names
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Gather:
    """A call that gives tensors without gradients, and where it stands."""

    call: ast.Call
    file: str
    shown: str
    takes_sync: bool
    """Whether it takes ``sync_grads``, as the ``all_gather`` of Lightning and Fabric does."""


def gather_of_loss(site: Site) -> Gather | None:
    """Find the gather that all of a loss comes out of, by the line of its backward; None where anything else does.

    Where a framework calls backward, each ``training_step`` of the user's files is asked.
    """
    for file, around, loss in (*_given_to_backward(site), *_of_training_steps(site)):
        found = _Traced(file, around)
        found.follow(loss, loss.lineno + 1, DEEP)
        if found.gathers and not found.is_alive:
            return min(found.gathers, key=lambda each: each.call.lineno)
    return None


def _given_to_backward(site: Site) -> Iterator[tuple[str, ast.AST, ast.expr]]:
    around = part_around(site)
    for node in ast.walk(around):
        match node:
            case ast.Call(func=ast.Attribute(attr="backward", value=owner), args=args, lineno=line) if (
                line == site.line
            ):
                yield site.file, around, args[0] if args else owner


def _of_training_steps(site: Site) -> Iterator[tuple[str, ast.AST, ast.expr]]:
    if "fit" not in tree_of(site.file).members:
        return
    for file in own_files(site.file):
        steps = [each for each in tree_of(file).of(ast.FunctionDef) if each.name == "training_step"]
        for step in steps:
            for node in ast.walk(step):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield file, step, _loss_in(node.value)


def _loss_in(value: ast.expr) -> ast.expr:
    """Return the loss of ``{"loss": loss, ...}``; any other value itself."""
    if isinstance(value, ast.Dict):
        for key, each in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "loss":
                return each
    return value


@dataclass(slots=True)
class _Traced:
    """What a loss is made of."""

    file: str
    around: ast.AST
    gathers: list[Gather] = field(default_factory=list)
    is_alive: bool = False
    """Whether something of it can carry a gradient, or nothing is known of it."""

    def follow(self, node: ast.AST, line: int, depth: int) -> bool:
        """Follow an expression to what it comes from; whether some of it came in from outside, not by a gather."""
        if not depth:
            self.is_alive = True
            return True
        if isinstance(node, ast.Call):
            return self._of_call(node, line, depth)
        if isinstance(node, ast.Name):
            return self._of_name(node.id, line, depth)
        return bool([each for each in ast.iter_child_nodes(node) if self.follow(each, line, depth)])

    def _of_call(self, call: ast.Call, line: int, depth: int) -> bool:
        if (gather := self._gather(call)) is not None:
            self.gathers.append(gather)
            return False
        if last_name(call.func) in CUTS:
            self.is_alive = True  # cut by more than a gather
            return False
        outside = bool([each for each in (*call.args, *call.keywords) if self.follow(each, line, depth)])
        if isinstance(call.func, ast.Attribute) and dotted(call.func) is None:  # a method of what is computed
            return self.follow(call.func.value, line, depth) or outside
        if self._is_module(call.func):
            self.is_alive = self.is_alive or outside or not self.gathers
        elif isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            return self._of_name(call.func.value.id, line, depth) or outside
        return outside

    def _is_module(self, function: ast.expr) -> bool:
        """Whether what is called can have parameters: it belongs to the object, or is made in this function."""
        name = dotted(function) or ""
        if OF_A_LOSS.search(name):
            return False
        if name.startswith("self."):
            return True
        return isinstance(function, ast.Name) and not self._is_function(function)

    def _is_function(self, name: ast.Name) -> bool:
        tree = tree_of(self.file)
        if (resolve(tree, name) or "").startswith(("torch.", "builtins.")):
            return True
        bound = tree.lookup(name.id, name)
        values = [each.value for each in bound]
        return not bound or all(isinstance(each, ast.FunctionDef) for each in values) or _is_imported(tree, name.id)

    def _of_name(self, name: str, line: int, depth: int) -> bool:
        filled = [each for each in self._fillers(name) if each.call.lineno < line]
        given = [each for each in self._given(name) if each[0] < line]
        if filled and (not given or filled[-1].call.lineno >= given[-1][0]):
            self.gathers.append(filled[-1])
            return False
        if not given:
            return name not in {"self", "cls"} and not self._is_global(name)
        last, value = given[-1]
        return self.follow(value, last, depth - 1)

    def _is_global(self, name: str) -> bool:
        arguments = getattr(self.around, "args", None)
        taken = {each.arg for each in ast.walk(arguments) if isinstance(each, ast.arg)} if arguments else set()
        return name not in taken and isinstance(self.around, Function)

    def _given(self, name: str) -> list[tuple[int, ast.expr]]:
        found: list[tuple[int, ast.expr]] = []
        for node in ast.walk(self.around):
            if isinstance(node, ast.Assign):
                names = {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and isinstance(node.target, ast.Name):
                names = {node.target.id}
            else:
                continue
            if name in names and node.value is not None:
                found.append((node.lineno, node.value))
        return sorted(found, key=lambda each: each[0])

    def _fillers(self, name: str) -> list[Gather]:
        calls = [
            each
            for each in ast.walk(self.around)
            if isinstance(each, ast.Call)
            and last_name(each.func) in INTO
            and len(each.args) > 1
            and ast.unparse(each.args[0]) == name
        ]
        return sorted(filter(None, map(self._gather, calls)), key=lambda each: each.call.lineno)

    def _gather(self, call: ast.Call) -> Gather | None:
        """Return a call that gathers without gradients; None of any other."""
        name, full = last_name(call.func), resolve(tree_of(self.file), call.func) or ""
        if name not in GATHERS | INTO or full.startswith(WITH_GRADIENTS) or full == "torch.gather":
            return None
        is_torch = full.startswith("torch.distributed.")
        is_method = isinstance(call.func, ast.Attribute) and call.args and not (name == "gather" and call.args[1:])
        if not is_torch and (not is_method or _is_synced(call)):
            return None
        around = withs_around(self.file, call.lineno)
        if any("grad" in ast.unparse(item.context_expr) for each in around for item in each.items):
            return None
        return Gather(call, self.file, ast.unparse(call.func), takes_sync=not is_torch and name == "all_gather")


def _is_synced(call: ast.Call) -> bool:
    """Whether a gather can be asked for gradients."""
    given = keyword(call, "sync_grads")
    is_off = given is None or (isinstance(given, ast.Constant) and given.value is False)
    return len(call.args) > SYNCED or not is_off


def _is_imported(tree: Tree, name: str) -> bool:
    imports: list[ast.Import | ast.ImportFrom] = [*tree.of(ast.ImportFrom), *tree.of(ast.Import)]
    return any((alias.asname or alias.name) == name for each in imports for alias in each.names)
