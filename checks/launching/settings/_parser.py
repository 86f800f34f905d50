"""The command line that a script's own parser takes, where its source says all of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import NO_PYTHON

GROUPS = {"add_argument_group", "add_mutually_exclusive_group"}
HARMLESS = {"parse_args", "set_defaults", "print_help", "print_usage", "error", "exit", "format_help", "get_default"}
SETTINGS = {"description", "usage", "epilog", "prog", "formatter_class", "add_help"}
TAKES_NONE = {"store_true", "store_false", "store_const", "count", "append_const", "help", "version"}
UNCERTAIN = ("sys.argv", "configargparse", "REMAINDER")
Parents = dict[ast.AST, ast.AST]


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its names; ``required`` where each command line has to have it; ``takes`` whether a value follows."""

    names: tuple[str, ...]
    required: bool
    takes: bool


def options_of(text: str) -> tuple[Option, ...] | None:
    """Return the options of a script's only parser of argparse; None where it is not certain which they are.

    A parser that is handed to a function, that has subcommands, that lets unknown options pass, or whose arguments are
    declared in a loop, is not certain.
    """
    if "argparse" not in text or any(each in text for each in UNCERTAIN):
        return None
    try:
        tree = ast.parse(text)
    except NO_PYTHON:
        return None
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    uses = list(_uses(tree, parents))
    parsed = [call for name, call in uses if name == "parse_args"]
    found = [_option(call, parents) for name, call in uses if name == "add_argument" and call is not None]
    is_certain = all(name in GROUPS | HARMLESS | {"add_argument"} for name, _ in uses) and None not in found
    once = len(parsed) == 1 and parsed[0] is not None and not (parsed[0].args or parsed[0].keywords)
    return tuple(each for each in found if each is not None) if is_certain and once else None


def _uses(tree: ast.Module, parents: Parents) -> Iterator[tuple[str, ast.Call | None]]:
    """Yield what is done with the parser and its groups: the method and its call; an empty name for anything else."""
    names = _names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
            attribute = parents[node]
            call = parents.get(attribute)
            if isinstance(attribute, ast.Attribute) and isinstance(call, ast.Call) and call.func is attribute:
                yield attribute.attr, call
            else:
                yield "", None


def _names(tree: ast.Module) -> set[str]:
    """Return the variables that hold the parser and its groups; none where there are several parsers."""
    made = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.Call) and ast.unparse(each.func) in {"argparse.ArgumentParser", "ArgumentParser"}
    ]
    if len(made) != 1 or made[0].args or {each.arg for each in made[0].keywords} - SETTINGS:
        return set()
    names = set()
    for each in ast.walk(tree):
        match each:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=function) as value):
                if value is made[0] or (isinstance(function, ast.Attribute) and function.attr in GROUPS):
                    names.add(name)
    return names


def _option(call: ast.Call, parents: Parents) -> Option | None:
    """Return what one add_argument declares; None in a loop, or where its names or settings are computed."""
    above = list(_above(call, parents))
    names = tuple(each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str))
    given = {each.arg: each.value for each in call.keywords}
    if not names or len(names) != len(call.args) or None in given:
        return None
    if any(isinstance(each, (ast.For, ast.While, ast.AsyncFor, ast.comprehension)) for each in above):
        return None
    required, action = given.get("required"), given.get("action")
    is_always = not any(isinstance(each, (ast.If, ast.Try, ast.IfExp)) for each in above)
    is_required = isinstance(required, ast.Constant) and required.value is True and is_always
    if action is not None and "BooleanOptionalAction" in ast.unparse(action):
        negated = tuple(f"--no-{each[2:]}" for each in names if each.startswith("--"))
        return Option((*names, *negated), is_required, takes=False)
    takes = action is None or (isinstance(action, ast.Constant) and action.value not in TAKES_NONE)
    return Option(names, is_required, takes)


def _above(node: ast.AST, parents: Parents) -> Iterator[ast.AST]:
    while (found := parents.get(node)) is not None:
        yield found
        node = found
