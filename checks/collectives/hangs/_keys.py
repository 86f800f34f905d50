"""A key of the ranks' store that a rank waits for: what the script sets there, as it is written."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import calls_at, question, tree_of

from ._told import short

if TYPE_CHECKING:
    from ddpdoctor.check import Site

WAITS = frozenset({"get", "wait", "check"})
SETS = frozenset({"set", "add", "compare_set", "append"})


def of_key(site: Site | None) -> str:
    """Return which key a line waits for, and whether a line of its file sets it; empty where none is written there.

    A loop that asks for one stands around the line.
    """
    if site is None:
        return ""
    asked = question(site.file, site.line)
    calls = [*calls_at(site.file, site.line), *(_calls(asked.asked) if asked else ())]
    keys = [key for call in calls if _method(call) in WAITS for key in _words(call)]
    sets = [node for node in tree_of(site.file).of(ast.Call) if _method(node) in SETS and node.args]
    if not keys:
        return _made(site, [each for call in calls if _method(call) in WAITS for each in _asked(call)], sets)
    told = {key: node.lineno for node in sets for key in _words(node)}
    if known := [key for key in keys if key in told]:
        return f": the key {known[0]!r}, which line {told[known[0]]} sets, has not been set"
    patterns = [(_pattern(node.args[0]), node) for node in sets if not _words(node)]
    if made := [node for pattern, node in patterns if pattern and any(re.fullmatch(pattern, key) for key in keys)]:
        listed = ", ".join(map(repr, keys[:4]))
        return (
            f": of {listed}, which line {made[0].lineno} sets as {ast.unparse(made[0].args[0])}, one has not been set"
        )
    if any(not pattern for pattern, _ in patterns):
        return f": the key {keys[0]!r}"
    others = ", ".join(f"{key!r} (line {line})" for key, line in list(told.items())[:3])
    name = short(site).partition(":")[0]
    return f": no line of {name} sets the key {keys[0]!r}" + (f"; it sets {others}" if others else "")


def _made(site: Site, keys: list[ast.expr], sets: list[ast.Call]) -> str:
    """Return how a key is made that is not written at the line, and which line sets one of the same name."""
    for key in keys:
        named = [
            each
            for each in tree_of(site.file).of(ast.Assign)
            if each.lineno < site.line and ast.unparse(each.targets[0]) == ast.unparse(key)
        ]
        made = named[-1].value if named else key
        lines = [call.lineno for call in sets if ast.unparse(call.args[0]) in {ast.unparse(key), ast.unparse(made)}]
        others = [call for call in sets if isinstance(call.args[0], ast.JoinedStr)]
        if not lines and isinstance(made, ast.JoinedStr) and len(others) == len(sets) > 0:
            told = ", ".join(f"{ast.unparse(call.args[0])} (line {call.lineno})" for call in others[:3])
            if not any(_alike(made, call.args[0]) for call in others):
                name = short(site).partition(":")[0]
                return f": no line of {name} sets a key like {ast.unparse(made)}; it sets {told}"
        if lines and isinstance(made, ast.JoinedStr):
            return (
                f": the key {ast.unparse(made)} of line {made.lineno}, which line {lines[0]} sets on another rank, has "
                "not been set as this rank has made it"
            )
    return ""


def _alike(one: ast.JoinedStr, other: ast.expr) -> bool:
    """Whether two f-strings can make one key: what stands in them between their variables is the same."""
    return _pattern(one) == _pattern(other)


def _pattern(key: ast.expr) -> str:
    """Return a pattern of the keys that an f-string can make; empty where a key is made otherwise."""
    if not isinstance(key, ast.JoinedStr):
        return ""
    return "".join(
        re.escape(part.value) if isinstance(part, ast.Constant) and isinstance(part.value, str) else ".*"
        for part in key.values
    )


def _calls(test: ast.expr) -> list[ast.Call]:
    return [each for each in ast.walk(test) if isinstance(each, ast.Call)]


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _asked(call: ast.Call) -> list[ast.expr]:
    """Return the keys of a call: its first argument, or what a list has there."""
    first = call.args[:1]
    return first[0].elts if first and isinstance(first[0], (ast.List, ast.Tuple)) else first


def _words(call: ast.Call) -> list[str]:
    """Return the keys that are written in a call."""
    return [each.value for each in _asked(call) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
