"""Which ranks a test lets through."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.alone import is_alone, is_flag_of_one_process
from ddpdoctor.source.reach.rank_facts import DEPTH, Fact, fact, is_either_rank, is_process_number, is_rank_within_node
from ddpdoctor.source.values.bound import answers, definition, function_named, given, is_of_options, values
from ddpdoctor.source.values.holders import shown_by, tests_of_holders
from ddpdoctor.source.values.properties import of_property

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree

FIRST = frozenset(
    "is_main_process is_local_main_process is_last_process is_global_zero is_world_process_zero"
    " is_local_process_zero is_rank_zero".split()
)
"""Attributes and methods of theirs that are true on one rank, or on one of each host."""
DECORATORS = re.compile(
    r"(?:^|\.)(?:rank_zero_only|on_main_process|on_local_main_process|on_last_process|on_process|on_local_process|one_rank_only)$"
)
"""Their decorators of functions that one rank alone runs."""
ALONE_OR_0 = {"-1", "0"}
"""The ranks of a test that lets a process without a launcher, whose rank is -1, through as well."""
ONE_RANK, OTHER_RANKS = "one rank", "the other ranks"


def who(tree: Tree, test: ast.expr, depth: int = DEPTH) -> str | None:
    """Return which ranks a test lets through, where it depends on the rank alone: one, or the others."""
    key = test, depth
    if key not in tree.sides:
        tree.sides[key] = _who(tree, test, depth)
    return tree.sides[key]


def _who(tree: Tree, test: ast.expr, depth: int) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one case a shape
    if _is_first(tree, test):
        return ONE_RANK
    match test if depth else None:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            if fact(tree, operand) in {Fact.RANK, Fact.LOCAL_RANK}:
                return ONE_RANK
            return other(who(tree, operand, depth - 1))
        case ast.BoolOp(op=ast.And(), values=parts):
            sides = {who(tree, part, depth - 1) for part in parts} - {None}
            return ONE_RANK if ONE_RANK in sides else next(iter(sides), None)
        case ast.BoolOp(op=ast.Or(), values=parts):
            sides = {who(tree, part, depth - 1) for part in parts if not _is_of_no_rank(tree, part)}
            return ONE_RANK if sides == {ONE_RANK} else None
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as operator], comparators=[ast.Constant(value=None)]):
            side = _holds_something(tree, left, depth)
            return side if isinstance(operator, ast.IsNot) else other(side)
        case ast.Compare(left=left, ops=[operator], comparators=[ast.Constant(value=int(number))]):
            if (switch := shown_by(tree, left)) is not None:
                moved = isinstance(operator, ast.Gt) or (number and isinstance(operator, (ast.Eq, ast.GtE)))
                return other(who(tree, switch, depth - 1)) if moved else None
            if fact(tree, left) not in {Fact.RANK, Fact.LOCAL_RANK} and not _counts_processes(tree, left):
                return None
            match operator, number:
                case (ast.Eq(), _) | (ast.Lt(), 1) | (ast.LtE(), 0):
                    return ONE_RANK
                case (ast.NotEq(), _) | (ast.Gt(), 0) | (ast.GtE(), 1):
                    return OTHER_RANKS
        case ast.Compare(left=left, ops=[ast.NotIn()], comparators=[ast.Tuple() | ast.List() as few]):
            numbers = {ast.unparse(each) for each in few.elts}
            if numbers == ALONE_OR_0 and fact(tree, left) in {Fact.RANK, Fact.LOCAL_RANK}:
                return OTHER_RANKS
        case ast.Name() | ast.Attribute():
            if fact(tree, test) in {Fact.RANK, Fact.LOCAL_RANK}:
                return OTHER_RANKS
            if (switch := shown_by(tree, test)) is not None:
                return other(who(tree, switch, depth - 1))
            if isinstance(test, ast.Attribute) and (computed := of_property(tree, test)):
                asked = {who(tree, one, depth - 1) for one in computed if not _is_true(one)}
                return next(iter(asked)) if len(asked) == 1 else None
            held = [(there, each) for there, each in _held(tree, test) if each is None or not _is_true(each)]
            sides = {who(there, each, depth - 1) if each is not None else None for there, each in held}
            if len(sides) == 1 and None not in sides:
                return next(iter(sides))
            return _holds_something(tree, test, depth)
        case ast.IfExp(test=asked, body=ast.Constant(value=bool(one)), orelse=ast.Constant(value=bool(two))):
            side = who(tree, asked, depth - 1) if one is not two else None
            return side if one else other(side)
        case ast.Call(func=function, args=[], keywords=[]):
            said = [(there, each) for there, each in answers(tree, function) if not _is_true(each)]
            sides = {who(there, each, depth - 1) for there, each in said}
            if said and all(isinstance(each, ast.Constant) for _, each in said):
                return _of_branches(tree, function, depth)
            return next(iter(sides)) if len(sides) == 1 else None
        case ast.Call(func=function, args=[given], keywords=[]):
            return _of_a_number(tree, function, given, depth)
    return None


def _of_a_number(tree: Tree, function: ast.expr, given: ast.expr, depth: int) -> str | None:
    """Return which ranks a helper answers True for that compares what it is handed: ``def is_master(r): r == 0``."""
    match definition(tree, function):
        case (
            _,
            ast.FunctionDef(
                args=ast.arguments(posonlyargs=[], args=[ast.arg(arg=name)]),
                body=[ast.Return(value=ast.Compare(left=ast.Name(id=asked), ops=operators, comparators=numbers))],
            ),
        ) if name == asked:
            return who(tree, ast.Compare(given, operators, numbers), depth - 1)
    return None


def _is_of_no_rank(tree: Tree, test: ast.expr) -> bool:
    """Whether a test holds for no rank of several: there is one process, or the number of a rank is None or a text."""
    match test:
        case ast.Compare(left=left, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=None | str())]):
            return fact(tree, left) in {Fact.RANK, Fact.LOCAL_RANK} or _counts_processes(tree, left)
    return is_flag_of_one_process(test) or is_alone(tree, test, holds=True)


def _counts_processes(tree: Tree, node: ast.expr) -> bool:
    return is_process_number(tree, node) or is_rank_within_node(tree, node) or is_either_rank(tree, node)


def _holds_something(tree: Tree, node: ast.expr, depth: int) -> str | None:
    """Return ``ONE_RANK`` where what a variable holds is there on one rank alone, and nothing elsewhere."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    things = tests_of_holders(tree, node)
    alone = [any(_side(tree, test, depth, holds=holds) == ONE_RANK for test, holds in each) for each in things]
    return ONE_RANK if alone and all(alone) else None


def _side(tree: Tree, test: ast.expr, depth: int, *, holds: bool) -> str | None:
    side = who(tree, test, depth - 1)
    return side if holds else other(side)


def _of_branches(tree: Tree, function: ast.expr, depth: int) -> str | None:
    """Return for which ranks a helper answers True that has ``if rank == 0: return True`` and ``return False``."""
    found = definition(tree, function)
    if found is None or isinstance(found[1], ast.Lambda):
        return None
    there, named = found
    sides: set[str | None] = set()
    for test in (each for each in ast.walk(named) if isinstance(each, ast.If)):
        match test.body:
            case [ast.Return(value=ast.Constant(value=bool(answer)))] if side := who(there, test.test, depth - 1):
                sides.add(side if answer else other(side))
    return next(iter(sides)) if len(sides) == 1 else None


def _held(tree: Tree, node: ast.expr) -> list[tuple[Tree, ast.expr | None]]:
    """Return what a variable can hold; of a parameter, what all calls pass; of an option, what other files store."""
    found: list[tuple[Tree, ast.expr | None]] = []
    for each in values(tree, node):
        found += given(tree, each) or [(tree, None)]
    if not found and tree.stored is not None and isinstance(node, ast.Attribute) and is_of_options(node):
        found += tree.stored(node.attr)
    return found


def _is_true(node: ast.expr) -> bool:
    """Whether it is what a helper answers where there is one process alone."""
    return isinstance(node, ast.Constant) and node.value is True


def _is_first(tree: Tree, test: ast.expr) -> bool:
    """Whether a test is one by which a framework says that this is the first rank, or ``local_rank in (-1, 0)``.

    ``should_save`` of transformers' TrainingArguments is one, by the name that everybody gives them.
    """
    if isinstance(test, ast.Call) and not (test.args or test.keywords):
        test = test.func
    match test:
        case ast.Attribute(
            value=ast.Name(id="args" | "training_args") | ast.Attribute(attr="args"), attr="should_save"
        ):
            return True
        case ast.Attribute(attr=name):
            return name in FIRST and not values(tree, test) and function_named(tree, test) is None
        case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.Tuple(elts=given) | ast.List(elts=given)]):
            numbers = {ast.unparse(each) for each in given}
            return {"0"} <= numbers <= ALONE_OR_0 and fact(tree, left) in {Fact.RANK, Fact.LOCAL_RANK}
    return False


def other(side: str | None) -> str | None:
    """Return the complement."""
    return {ONE_RANK: OTHER_RANKS, OTHER_RANKS: ONE_RANK}.get(side or "")
