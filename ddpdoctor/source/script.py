"""A Python file as the checks that read source see it: what its names mean, who comes to a line, what is wrapped."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ddpdoctor.findings import Edit, Evidence, Place
from ddpdoctor.source import names, wrapped
from ddpdoctor.source.arguments import keyword
from ddpdoctor.source.epochs import counts_epochs, epochs_around, learns
from ddpdoctor.source.flow import flow
from ddpdoctor.source.names import LONGEST
from ddpdoctor.source.project import TRAINER
from ddpdoctor.source.reach import bound, calls, guards, literal, personal, rank_facts, who
from ddpdoctor.source.reach.sites import argument, call_sites, some_sites
from ddpdoctor.source.tree import FUNCTIONS, Function, Kind, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.notebook import Cells
    from ddpdoctor.source.reach.guards import Guard
    from ddpdoctor.source.reach.rank_facts import Fact
    from ddpdoctor.source.wrapped import Wrap

INIT = "torch.distributed.init_process_group"
DDP = "torch.nn.parallel.DistributedDataParallel"
GROUPS = (
    "accelerate.Accelerator",
    "deepspeed.initialize",
    "deepspeed.init_distributed",
    "horovod.torch.init",
)
"""What the scripts of frameworks call that run in each rank from their first line."""
COLLECTIVES = frozenset(
    f"torch.distributed.{name}"
    for name in (
        "all_gather all_gather_coalesced all_gather_into_tensor all_gather_object all_reduce all_reduce_coalesced"
        " all_to_all all_to_all_single barrier broadcast broadcast_object_list gather gather_object monitored_barrier"
        " reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list"
    ).split()
)
FRAMEWORKS = frozenset(
    "accelerate catalyst colossalai composer deepspeed detectron2 fairscale fairseq fastai fvcore horovod ignite"
    " lightning lightning_fabric megatron mmcv mmengine oneflow paddle pl_bolts pytorch_lightning ray transformers"
    " torchtnt".split()
)
"""They can set the epoch, choose the device, guard what is written or reduce: where one is imported, little is certain
that a file does not do."""
OF_RANKS = re.compile(r"torch\.distributed|DistributedDataParallel|DistributedSampler")


@dataclass
class Script:
    """A parsed file; ``path`` is as findings show it. What is asked of it is worked out once.

    ``cells`` are those of a notebook, which is one module.
    """

    path: str
    text: str
    module: ast.Module
    cells: Cells | None = None

    @cached_property
    def tree(self) -> Tree:
        """The tree with parents and bindings."""
        return Tree(self.module)

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the file, without their ends; one of the file counts as Python counts."""
        return re.split(r"\r\n|\r|\n", self.text)

    @cached_property
    def _calls(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for node in self.tree.of(ast.Call):
            if path := self.resolve(node.func):
                found[path].append(node)
        return found

    @cached_property
    def imported(self) -> frozenset[str]:
        """The top-level names of all that the file imports."""
        paths = [each.path for scope in self.tree.bindings.values() for bound in scope.values() for each in bound]
        return frozenset(path.partition(".")[0] for path in paths if path and not path.startswith("."))

    @cached_property
    def frameworks(self) -> frozenset[str]:
        """The frameworks that it imports, but for the models of transformers."""
        found = self.imported & FRAMEWORKS
        has_trainer = "transformers" in found and TRAINER.search(self.text)
        return found if has_trainer else found - {"transformers"}

    @cached_property
    def joins(self) -> bool:
        """Whether it makes a process group, or wraps a model in DDP: a training of several processes."""
        inits = self._calls.get(INIT, [])
        sizes = [self.value(size) for each in inits if (size := keyword(each, "world_size")) is not None]
        ones = [size for size in sizes if isinstance(size, ast.Constant) and size.value == 1]
        return len(ones) < len(inits) or bool(not inits and self._calls.get(DDP))

    @cached_property
    def runs_in_ranks(self) -> bool:
        """Whether the file makes a group of processes, by torch or by a framework that launchers start in each rank."""
        return self.joins or any(self._calls.get(path) for path in GROUPS)

    @property
    def is_test(self) -> bool:
        """Whether it is a test: what stands there is wrong on purpose, or part of a whole that is not seen."""
        *_, folder, name = ["", *self.path.replace("\\", "/").split("/")]
        return folder in {"test", "tests", "testing"} or name.startswith("test_") or name == "conftest.py"

    def resolve(self, node: ast.expr) -> str | None:
        """Return the full name of what an expression names (``torch.distributed.barrier``); None if not certain."""
        return names.resolve(self.tree, node)

    def calls(self, *paths: str) -> list[ast.Call]:
        """Return the calls of the things of these full names, in the order of the file."""
        found = [call for path in paths for call in self._calls.get(path, ())]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def nodes(self, *kinds: type[Kind]) -> list[Kind]:
        """Return the nodes of these kinds; those of one kind in the order of the file."""
        return [node for kind in kinds for node in self.tree.of(kind)]

    def fact(self, node: ast.expr) -> Fact | None:
        """Return what a number is: a rank, a local rank, a world size; None if that is not certain."""
        return rank_facts.fact(self.tree, node)

    def variable(self, node: ast.expr) -> str | None:
        """Return the environment variable whose text an expression holds, unconverted."""
        return bound.variable(self.tree, self.value(node))

    def value(self, node: ast.expr) -> ast.expr:
        """Return the expression that a variable was given, where it is given only one; else the node itself."""
        return bound.value(self.tree, node)

    @staticmethod
    def value_in(tree: Tree, node: ast.expr) -> ast.expr:
        """Return the expression that a variable of another file was given."""
        return bound.value(tree, node)

    def constant(self, node: ast.expr) -> ast.Constant | None:
        """Return the literal that an expression is, or that all callers of the project pass for a parameter."""
        value = self.value(node)
        if isinstance(value, ast.Constant):
            return value
        bindings = self.tree.lookup(value.id, value) if isinstance(value, ast.Name) else []
        parameter = bindings[0].node if len(bindings) == 1 else None
        function = self.function(parameter) if isinstance(parameter, ast.arg) else None
        if not isinstance(function, ast.FunctionDef) or not isinstance(parameter, ast.arg) or self.tree.callers is None:
            return None
        sites = call_sites(self.tree, function)
        calls = [*sites, *(site for _, site in self.tree.callers(function))] if sites is not None else []
        passed = [argument(each, function, parameter.arg, spawned=False) for each in calls]
        literals = [each for each in passed if isinstance(each, ast.Constant)]
        same = bool(literals) and len(literals) == len(passed) and len({each.value for each in literals}) == 1
        return literals[0] if same else None

    def held(self, node: ast.expr) -> ast.expr | None:
        """Return the expression that a variable was last given before a node, if that is the same on every way."""
        found = wrapped.possible(self.tree, bound.values(self.tree, node), node)
        return found[0].value if len(found) == 1 else None

    def wrap(self, node: ast.expr) -> Wrap | None:
        """Return how the model is wrapped that an expression holds; None if it is not, or not certainly."""
        if not any(self._calls.get(path) for path in wrapped.KINDS):
            return None
        return wrapped.wrap_at(self.tree, node)

    def who(self, test: ast.expr) -> str | None:
        """Return which ranks a test lets through, where it depends on the rank alone: one, or the others."""
        return who.who(self.tree, test)

    def guards(self, node: ast.AST) -> list[Guard]:
        """Return the tests that a node is reached through, within its function."""
        return list(guards.guards(self.tree, node))

    def all_ranks_reach(self, node: ast.AST) -> bool:
        """Whether every rank is shown to come to a node, and no process that is none."""
        return calls.all_ranks_reach(self.tree, node) and not calls.runs_in_parent(self.tree, node)

    @staticmethod
    def runs_before_ranks(tree: Tree, node: ast.AST) -> bool:
        """Whether a node of a file runs in the process that starts the ranks, and not in them."""
        return calls.runs_in_parent(tree, node)

    def never_runs(self, line: int, column: int) -> bool:
        """Whether what begins at a place, as findings have it, stands behind a test that no call of the file passes."""
        nodes: list[ast.expr | ast.stmt] = [*self.nodes(ast.Call), *self.nodes(ast.Assign), *self.nodes(ast.Expr)]
        here = [each for each in nodes if each.lineno == line and self.place(each).column == column]
        return any(literal.never_runs(self.tree, each) for each in here)

    def ranks_of_others_reach(self, node: ast.AST) -> bool:
        """Whether every rank of a training in another file of the project calls the function that a node stands in."""
        return calls.ranks_of_others_reach(self.tree, node)

    def joins_elsewhere(self, node: ast.AST) -> bool:
        """Whether a function of another file, which makes the process group, is called before a node.

        One that makes it on some condition of the caller's counts where the file itself is about several ranks.
        """
        main = [
            each for each in self.nodes(ast.Call) if each.lineno < getattr(node, "lineno", 0) or self.function(node)
        ]
        for call in main:
            found = self.defined(call.func)
            if found is None or found[0] is self.tree or any(each.is_rankish(self.tree) for each in self.guards(call)):
                continue
            inits = [each for each in found[0].of(ast.Call) if names.resolve(found[0], each.func) == INIT]
            own = [each for each in inits if found[0].function(each) is found[1]]
            tests = [ast.unparse(guard.test) for each in own for guard in guards.guards(found[0], each)]
            if own and (all("environ" in each for each in tests) or OF_RANKS.search(self.text)):
                return True
        return False

    def can_differ(self, node: ast.expr) -> bool:
        """Whether what an expression holds can be another on each rank, by a word in it or in what it is made of."""
        words = personal.OF_PLACES
        return personal.is_rankish(self.tree, node, words=words) or personal.is_personal(self.tree, node)

    def one_rank_guard(self, node: ast.AST) -> Guard | None:
        """Return the test that lets only one rank come to a node, if there is one in its function."""
        return next((each for each in self.guards(node) if each.who(self.tree) == who.ONE_RANK), None)

    def all_calls(self) -> dict[str, list[ast.Call]]:
        """Return all calls of things whose full name is known, by that name."""
        return self._calls

    def names_class(self, node: ast.expr) -> ast.ClassDef | None:
        """Return the class of the file that an expression names."""
        found = [each.node for each in self.tree.lookup(node.id, node)] if isinstance(node, ast.Name) else []
        return found[0] if len(found) == 1 and isinstance(found[0], ast.ClassDef) else None

    def names_function(self, node: ast.expr) -> ast.FunctionDef | None:
        """Return the function of the file that a name names."""
        named = bound.function_named(self.tree, node) if isinstance(node, ast.Name) else None
        return named if isinstance(named, ast.FunctionDef) else None

    def options(self) -> dict[str, ast.Call]:
        """Return the calls of ``add_argument``, by the attribute that they fill."""
        return bound.options(self.tree)

    def is_parsed(self, node: ast.expr) -> bool:
        """Whether a name holds what an argument parser returned, and nothing else."""
        return isinstance(node, ast.Name) and bound.is_parsed(self.tree, node)

    def made_by(self, node: ast.expr, *paths: str) -> ast.Call | None:
        """Return the call that made what an expression holds, on every way, if it is of one of these full names.

        What ``model.to(device)`` and its like return is the model.
        """
        held: ast.expr | None = node
        for _ in range(LONGEST):
            match held:
                case ast.Name() | ast.Attribute():
                    held = self.held(held)
                case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in wrapped.SAME_OBJECT:
                    held = inner
                case _:
                    break
        is_one = isinstance(held, ast.Call) and self.resolve(held.func) in paths
        return held if is_one and isinstance(held, ast.Call) else None

    def is_assigned(self, node: ast.Attribute) -> bool:
        """Whether the file stores something in this attribute of this object."""
        return bool(bound.values(self.tree, node))

    def waits_before(self, node: ast.AST) -> bool:
        """Whether a collective stands before a node in its function: one rank can have done alone what all do here."""
        function = self.function(node)
        waits = [each for each in self.calls(*COLLECTIVES) if self.function(each) is function]
        return any(each.lineno < getattr(node, "lineno", 0) for each in waits)

    def learned(self, call: ast.Call) -> tuple[ast.For | ast.While | None, bool] | None:
        """Return the loop over epochs in which a model learns from the loaders that are given what a call makes.

        The loop is None where it stands in another file; beside it is whether code that is not seen gets hold of it.
        The whole is None where no such loop is found.
        """
        found = flow(self.tree, call)
        around = [epochs_around(tree, loop) for tree, loop in found.loops if learns(tree, loop)]
        for each in [*around, *(place for place in found.renewed if learns(*place))]:
            if each is not None:
                return each[1] if each[0] is self.tree else None, found.escapes
        return None

    @staticmethod
    def passes(tree: Tree, call: ast.Call) -> list[tuple[Tree, ast.For]]:
        """Return the loops of the project that go through what a call of one of its files makes, each with its tree."""
        return flow(tree, call).loops

    def epoch_loops(self) -> list[ast.For]:
        """Return the loops of the file that count epochs, more than one."""
        return [each for each in self.nodes(ast.For) if counts_epochs(self.tree, each)]

    def learns(self, node: ast.AST) -> bool:
        """Whether a backward runs in a node, or in the functions of the project that it calls."""
        return learns(self.tree, node)

    @staticmethod
    def guards_in(tree: Tree, node: ast.AST) -> list[Guard]:
        """Return the tests that a node of another file is reached through, within its function."""
        return list(guards.guards(tree, node))

    @staticmethod
    def names_in(tree: Tree, node: ast.expr) -> str | None:
        """Return the full name of what an expression of another file names."""
        return names.resolve(tree, node)

    def is_bound_once(self, name: str) -> bool:
        """Whether one variable of the file has this name, and is given one value."""
        found = [bound[name] for bound in self.tree.bindings.values() if name in bound]
        return len(found) == 1 and len(found[0]) == 1

    def sites(self, function: Function) -> list[ast.Call]:
        """Return calls of a function of the file, as far as they are certain."""
        return some_sites(self.tree, function)

    def defined(self, node: ast.expr) -> tuple[Tree, Function] | None:
        """Return the function of the project that an expression names, and the tree of its file."""
        return bound.definition(self.tree, node)

    @staticmethod
    def defined_in(tree: Tree, node: ast.expr) -> tuple[Tree, Function] | None:
        """Return the function of the project that an expression of another file names, and the tree of its file."""
        return bound.definition(tree, node)

    def returned(self, call: ast.Call) -> list[ast.expr]:
        """Return the expressions that the function of the project returns that a call calls."""
        return [each for _, each in bound.answers(self.tree, call.func)]

    def called(self, call: ast.Call) -> Function | None:
        """Return the function of the file that a call calls."""
        return bound.function_named(self.tree, call.func)

    def function(self, node: ast.AST) -> Function | None:
        """Return the function that a node stands in."""
        return self.tree.function(node)

    def inside(self, *roots: ast.AST) -> Iterator[ast.AST]:
        """Yield what stands in these nodes, in the order of the source, but not in functions that they define."""
        for root in roots:
            yield root
            for child in ast.iter_child_nodes(root):
                if not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
                    yield from self.inside(child)

    def place(self, node: ast.AST) -> Place:
        """Return where a node begins."""
        line = int(getattr(node, "lineno", 1))
        before = self.lines[line - 1].encode()[: getattr(node, "col_offset", 0)]
        return Place(file=self.path, line=line, column=len(before.decode(errors="replace")) + 1)

    def code(self, node: ast.AST) -> str:
        """Return a node's source in one line."""
        if not isinstance(node, (ast.expr, ast.stmt)) or node.end_lineno is None:
            return " ".join(ast.unparse(node).split())
        lines = [line.encode() for line in self.lines[node.lineno - 1 : node.end_lineno]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b"\n".join(lines).decode(errors="replace").split())

    def seen(self, node: ast.AST, expected: str = "") -> Evidence:
        """Return the line that a node begins on as evidence."""
        line = int(getattr(node, "lineno", 1))
        return Evidence(self.lines[line - 1].strip(), expected, f"line {line}")

    def replaced(self, node: ast.expr, text: str) -> Edit:
        """Return the edit that puts a text in the place of an expression."""
        assert node.end_lineno is not None  # noqa: S101 - the parser sets both
        assert node.end_col_offset is not None  # noqa: S101
        return Edit(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, text)

    def keyword_added(self, call: ast.Call, word: str) -> Edit:
        """Return the edit that gives a call one more argument, behind its last."""
        last = max(
            [*call.args, *(each.value for each in call.keywords)],
            key=lambda each: (each.end_lineno, each.end_col_offset),
        )
        line, column = last.end_lineno or 0, last.end_col_offset or 0
        return Edit(line, column, line, column, f", {word}")

    def line_before(self, statement: ast.stmt, text: str) -> Edit:
        """Return the edit that puts a line before a statement, as far indented."""
        column = statement.col_offset
        indent = self.lines[statement.lineno - 1].encode()[:column].decode(errors="replace")
        return Edit(statement.lineno, column, statement.lineno, column, f"{text}\n{indent}")
