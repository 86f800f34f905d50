"""A Python file as the checks that read source see it: what its names mean, who comes to a line, what is wrapped."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ddpdoctor.source.arguments import keyword
from ddpdoctor.source.callers import calls, literal, turns
from ddpdoctor.source.libraries import ACCELERATES, TRAINER
from ddpdoctor.source.meaning import Meaning
from ddpdoctor.source.project import without_comments
from ddpdoctor.source.reach import guards, personal, rank_facts, rankish, who
from ddpdoctor.source.reach.alone import of_several
from ddpdoctor.source.reach.refused import is_refused
from ddpdoctor.source.text import names
from ddpdoctor.source.training import wrapped
from ddpdoctor.source.training.epochs import counts_epochs, epochs_around, is_in_learning_loop, learns
from ddpdoctor.source.training.flow import flow, flow_of_part
from ddpdoctor.source.training.loader_kinds import is_sampler, sampler_class
from ddpdoctor.source.training.prepared import given_back
from ddpdoctor.source.training.wrapped_abroad import is_wrapped_abroad
from ddpdoctor.source.values.sites import call_sites
from ddpdoctor.source.vocabulary import COLLECTIVES, DATA_PARALLEL, DDP, FRAMEWORKS, GROUPS, INIT, OF_RANKS, PARTS

if TYPE_CHECKING:
    from ddpdoctor.source.reach.guards import Guard
    from ddpdoctor.source.reach.rank_facts import Fact
    from ddpdoctor.source.text.tree import Tree
    from ddpdoctor.source.training.wrapped import Wrap


@dataclass
class Script(Meaning):
    """A parsed file, and what it does with the ranks: who comes to a line, which model is wrapped, what learns."""

    @cached_property
    def _paths(self) -> frozenset[str]:
        """The full names of all that the file imports from outside."""
        return frozenset(path for path, _ in self._taken)

    @cached_property
    def _taken(self) -> list[tuple[str, str]]:
        """The full name of each thing that the file imports from outside, and the name that it has here."""
        bound = [(name, each) for scope in self.tree.bindings.values() for name, many in scope.items() for each in many]
        return [(each.path, name) for name, each in bound if each.path and not each.path.startswith(".")]

    @cached_property
    def imported(self) -> frozenset[str]:
        """The top-level names of all that the file imports."""
        return frozenset(path.partition(".")[0] for path in self._paths)

    @cached_property
    def frameworks(self) -> frozenset[str]:
        """The frameworks that it imports, but for models of transformers, and samplers, losses and helpers of others.

        What is imported and never read does nothing.
        """
        used = [path for path, name in self._taken if name in self.tree.read or not _is_idle(self.text, name)]
        found = frozenset(path.partition(".")[0] for path in used if not path.startswith(PARTS)) & FRAMEWORKS
        by_hand = bool(self._calls.get(DDP)) and re.search(r"Trainer\b", self.text) is None
        idle = set() if TRAINER.search(self.text) and not by_hand else {"transformers"}
        return found - idle - (set() if ACCELERATES.search(self.text) else {"accelerate"})

    @cached_property
    def joins(self) -> bool:
        """Whether it makes a process group, or wraps a model in DDP: a training of several processes."""
        inits = self._calls.get(INIT, [])
        sizes = [self.constant(size) for each in inits if (size := keyword(each, "world_size")) is not None]
        ones = [size for size in sizes if size is not None and size.value == 1]
        wraps = [] if inits else [each for each in self._calls.get(DDP, ()) if not self._is_dead(each)]
        return len(ones) < len(inits) or bool(wraps)

    def _is_dead(self, node: ast.AST) -> bool:
        """Whether a node stands in a function of a program that nobody calls, here or in another file."""
        function = self.function(node)
        if not isinstance(function, ast.FunctionDef) or "__main__" not in self.text:
            return False
        abroad = self.tree.callers(function) if self.tree.callers is not None else []
        return call_sites(self.tree, function) == [] and not abroad and self.tree.class_of(function) is None

    @cached_property
    def runs_in_ranks(self) -> bool:
        """Whether the file makes a group of processes, by torch or by a framework that launchers start in each rank."""
        return self.joins or any(self._calls.get(path) for path in GROUPS)

    def has_module(self, name: str) -> bool:
        """Whether the top of the file imports a module under its own name: ``import os``."""
        bound = self.tree.bindings.get(self.tree.module, {}).get(name, [])
        return bool(bound) and all(isinstance(each.node, ast.Import) and each.path == name for each in bound)

    @cached_property
    def has_one_rank_a_host(self) -> bool:
        """Whether the file gives every process the same local rank: they are on hosts of their own, with own disks."""
        stores = [target for each in self.nodes(ast.Assign) if _is_number(each.value) for target in each.targets]
        return (
            any(
                isinstance(each, ast.Subscript)
                and self.resolve(each.value) == "os.environ"
                and isinstance(each.slice, ast.Constant)
                and each.slice.value == "LOCAL_RANK"
                for each in stores
            )
            or self._meets_at_other_host
            or self._is_told_where_to_meet
        )

    @cached_property
    def _meets_at_other_host(self) -> bool:
        """Whether the file names a host at which its processes meet, starts none of them, and reads no local rank.

        Each of them was started by hand, on a host or in a container of its own.
        """
        if re.search(r"LOCAL_RANK|LOCALID|spawn|Process\(|start_processes", self.text):
            return False
        addresses = {address for each in self.nodes(ast.Constant) if isinstance(each.value, str)
                     for address in ADDRESS.findall(each.value)}  # fmt: skip
        return bool(self._calls.get(INIT)) and any(not each.startswith(("127.", "0.", "224.")) for each in addresses)

    @cached_property
    def _is_told_where_to_meet(self) -> bool:
        """Whether an address and a rank are typed for each process: by hand, as on hosts of their own.

        Two processes of one host can be started so as well: it is not known then.
        """
        if re.search(r"environ|getenv|LOCAL|spawn|Process\(|start_processes|127\.|localhost|file://", self.text):
            return False
        inits = self._calls.get(INIT, [])
        given = [(keyword(each, "init_method"), keyword(each, "rank")) for each in inits]
        return bool(inits) and all(
            rank is not None and method is not None and not isinstance(self.value(method), ast.Constant)
            for method, rank in given
        )

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return self.path.replace("\\", "/").rpartition("/")[2]

    @property
    def is_test(self) -> bool:
        """Whether it is a test: what stands there is wrong on purpose, or part of a whole that is not seen."""
        *_, folder, name = ["", *self.path.replace("\\", "/").split("/")]
        return folder in {"test", "tests", "testing"} or name.startswith("test_") or name == "conftest.py"

    def fact(self, node: ast.expr) -> Fact | None:
        """Return what a number is: a rank, a local rank, a world size; None if that is not certain."""
        return rank_facts.fact(self.tree, node)

    def wrap(self, node: ast.expr) -> Wrap | None:
        """Return how the model is wrapped that an expression holds; None if it is not, or not certainly."""
        if not any(self._calls.get(path) for path in wrapped.KINDS):
            return None
        return wrapped.wrap_at(self.tree, node)

    def of_several(self, node: ast.expr) -> ast.expr:
        """Return what a choice between one process and several is where there are several."""
        return of_several(self.tree, node)

    def is_wrapped_abroad(self, node: ast.expr) -> bool:
        """Whether a variable can hold a model that a function of another file has wrapped in DDP."""
        return is_wrapped_abroad(self.tree, node)

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

    def is_true(self, test: ast.expr, node: ast.AST) -> bool:
        """Whether a test holds by the literals of a call that comes to a node."""
        return literal.is_true_in_a_call(self.tree, test, node)

    def never_runs(self, line: int, column: int) -> bool:
        """Whether no call, or none of several ranks, comes to what begins at a place, as findings have it."""
        kinds: tuple[type[ast.expr | ast.stmt], ...] = (ast.Call, ast.Assign, ast.Expr, ast.Name)
        nodes = [each for kind in kinds for each in self.nodes(kind)]
        here = [each for each in nodes if each.lineno == line and self.place(each).column == column]
        of_ranks = not self._calls.get(DATA_PARALLEL)
        return any(literal.never_runs(self.tree, each) or (of_ranks and is_refused(self.tree, each)) for each in here)

    def ranks_of_others_reach(self, node: ast.AST, *, at_once: bool = False) -> bool:
        """Whether every rank of a training in another file of the project calls the function that a node stands in.

        ``at_once``: with no barrier before the call, at which they wait for what one rank has done.
        """
        return calls.ranks_of_others_reach(self.tree, node, relayed=at_once)

    def joins_elsewhere(self, node: ast.AST) -> bool:
        """Whether a function of another file, which makes the process group, is called before a node.

        One that makes it on some condition of the caller's counts where the file itself is about several ranks. A file
        that wraps its models in DataParallel alone is run as one process, which such a helper lets pass.
        """
        if self._calls.get(DATA_PARALLEL) and not self._calls.get(DDP):
            return False
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
        return self.can_differ_in(self.tree, node)

    @staticmethod
    def can_differ_in(tree: Tree, node: ast.expr) -> bool:
        """Whether what an expression of another file holds can be another on each rank."""
        return rankish.is_rankish(tree, node, words=rankish.OF_PLACES) or personal.is_personal(tree, node)

    def one_rank_guard(self, node: ast.AST) -> Guard | None:
        """Return the test that lets only one rank come to a node, if there is one in its function."""
        return next((each for each in self.guards(node) if each.who(self.tree) == who.ONE_RANK), None)

    def waits_before(self, node: ast.AST) -> bool:
        """Whether a collective stands before a node in its function: one rank can have done alone what all do here."""
        if isinstance(node, ast.expr) and turns.one_is_waited_for(self.tree, node):
            return True
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
        if found.endless and (found.kept or any(is_in_learning_loop(*each) for each in found.drawn)):
            there, loop = found.endless[0]
            return loop if there is self.tree else None, found.escapes
        return None

    @staticmethod
    def is_sampler(tree: Tree, call: ast.Call) -> bool:
        """Whether a call of a file of the project makes a DistributedSampler, of torch or of a class that inherits."""
        return is_sampler(tree, call.func)

    def own_sampler(self, call: ast.Call) -> ast.ClassDef | None:
        """Return the class of the project that inherits from DistributedSampler, where a call makes such a sampler."""
        found = sampler_class(self.tree, call.func)
        return found[1] if found is not None else None

    @staticmethod
    def passes(tree: Tree, call: ast.Call) -> list[tuple[Tree, ast.For]]:
        """Return the loops of the project that go through what a call of one of its files makes, each with its tree."""
        return flow(tree, call).loops

    @staticmethod
    def handed(tree: Tree, call: ast.Call) -> set[ast.AST]:
        """Return the calls of the project's functions that are given what a call of one of its files makes."""
        return flow(tree, call).handed

    @staticmethod
    def given_back(tree: Tree, call: ast.Call) -> list[tuple[ast.expr, list[ast.expr]]]:
        """Return what a call of Accelerate's ``prepare`` is given, each with where what it returns for it is read."""
        return list(given_back(tree, call))

    @staticmethod
    def passes_of_part(tree: Tree, call: ast.Call, reads: list[ast.expr]) -> list[tuple[Tree, ast.For]]:
        """Return the loops of the project that go through one of several things that a call makes, by its reads."""
        return flow_of_part(tree, call, reads).loops

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


ADDRESS = re.compile(r"^(?:tcp://)?((?:\d{1,3}\.){3}\d{1,3})(?::|$)")


def _is_idle(text: str, name: str) -> bool:
    """Whether a name that is imported occurs nowhere else, not even in a text or an annotation."""
    return name != "*" and len(re.findall(rf"\b{re.escape(name)}\b", without_comments(text))) == 1


def _is_number(node: ast.expr) -> bool:
    """Whether it is a number, or ``str`` of one, that is written out."""
    return isinstance(node, ast.Constant) and str(node.value).isdigit()
