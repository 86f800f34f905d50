"""A Python file as the checks that read source see it: what its names mean, who comes to a line, what is wrapped."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from ddpdoctor.source.callers import calls, literal, parents, turns
from ddpdoctor.source.program import Program
from ddpdoctor.source.reach import guards, personal, rank_facts, rankish, who
from ddpdoctor.source.reach.alone import of_several
from ddpdoctor.source.reach.refused import is_refused
from ddpdoctor.source.training.epochs import counts_epochs, epochs_around, is_in_learning_loop, learns
from ddpdoctor.source.training.followed.flow import flow, flow_of_part
from ddpdoctor.source.training.followed.prepared import given_back
from ddpdoctor.source.training.loader_kinds import is_sampler, sampler_class
from ddpdoctor.source.training.wraps import wrapped
from ddpdoctor.source.training.wraps.wrapped_abroad import is_wrapped_abroad
from ddpdoctor.source.vocabulary import COLLECTIVES, DATA_PARALLEL

if TYPE_CHECKING:
    from ddpdoctor.source.reach.guards import Guard
    from ddpdoctor.source.reach.rank_facts import Fact
    from ddpdoctor.source.text.tree import Tree
    from ddpdoctor.source.training.wraps.wrapped import Wrap


@dataclass
class Script(Program):
    """A parsed file, and what it does with the ranks: who comes to a line, which model is wrapped, what learns."""

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
        return calls.all_ranks_reach(self.tree, node) and not parents.runs_in_parent(self.tree, node)

    @staticmethod
    def runs_before_ranks(tree: Tree, node: ast.AST) -> bool:
        """Whether a node of a file runs in the process that starts the ranks, and not in them."""
        return parents.runs_in_parent(tree, node)

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

    def can_differ(self, node: ast.expr) -> bool:
        """Whether what an expression holds can be another on each rank, by a word in it or in what it is made of."""
        return self.can_differ_in(self.tree, node)

    @staticmethod
    def can_differ_in(tree: Tree, node: ast.expr) -> bool:
        """Whether what an expression of another file holds can be another on each rank."""
        return rankish.is_rankish(tree, node, words=rankish.OF_PLACES) or personal.is_personal(tree, node)

    def one_rank_guard(self, node: ast.AST) -> Guard | None:
        """Return the test that lets only one rank come to a node, in its function or around where that is made."""
        within = (each for each in self.guards(node) if each.who(self.tree) == who.ONE_RANK)
        around = (guard for _, guard in guards.made_by_one_rank(self.tree, node))
        return next(chain(within, around), None)

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
