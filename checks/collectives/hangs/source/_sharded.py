"""The state dict of a model that FSDP shards, on one way at least, where one rank alone asks for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import FSDP, Shard, dotted, shards, states, taken

from ._all_ranks import others_have_a_branch

if TYPE_CHECKING:
    from ddpdoctor.check import Guard, Script

SAYS_FSDP = re.compile(r"fsdp|FullyShard", re.IGNORECASE)
OF_ITS_OWN = re.compile(r"(?:LOCAL|SHARDED)_STATE_DICT|(?:Local|Sharded)StateDictConfig")
"""Kinds of state dicts for which a rank gathers nothing."""
KINDS = re.compile(r"isinstance|hasattr|fsdp|shard|ddp|distributed|parallel|strateg", re.IGNORECASE)
"""Words of a test that can be about the wrapper."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that one rank alone comes to, the test that lets it, where FSDP wraps the model, and where it gathers."""

    call: ast.Call
    test: ast.expr
    shard: Shard
    gathers: ast.Call
    is_here: bool
    """Whether FSDP wraps the model in the file of the call."""

    @property
    def made(self) -> str:
        """Where the model is wrapped, and on which ways, as a part of a sentence."""
        tests = ", ".join(each.words for each in self.shard.guards)
        line = f" in line {self.shard.call.lineno}" if self.is_here else ""
        return f"FSDP wraps it{line}{f', {tests}' if tests else ''}"


def sharded_alone(script: Script) -> Iterator[Asked]:
    """Yield the calls that ask for a state dict which gathers the shards, or that hand the model to who does."""
    if not SAYS_FSDP.search(script.text) or OF_ITS_OWN.search(script.text):
        return
    for call in script.nodes(ast.Call):
        guard = script.one_rank_guard(call)
        if guard is None or others_have_a_branch(script, guard.test, call):
            continue
        yield from _at(script, call, guard.test)


def _at(script: Script, call: ast.Call, test: ast.expr) -> Iterator[Asked]:
    match call.func:
        case ast.Attribute(value=ast.Attribute(value=model, attr="module"), attr="state_dict"):
            yield from _first(script, call, test, model, is_inner=True)
            return
        case ast.Attribute(value=model, attr="state_dict"):
            if script.made_by(model, FSDP) is None:  # which is told where it is certain
                yield from _first(script, call, test, model, is_inner=False)
            return
    for given, there in taken(script.tree, call):
        found = states(there) if isinstance(given, (ast.Name, ast.Attribute)) else ()
        for tree, asked, is_inner in found:
            if any(KINDS.search(ast.unparse(each.test)) for each in script.guards_in(tree, asked)):
                continue
            for each in _first(script, call, test, given, is_inner=is_inner):
                yield Asked(call, test, each.shard, asked, each.is_here)
                return


def _first(script: Script, call: ast.Call, test: ast.expr, model: ast.expr, *, is_inner: bool) -> Iterator[Asked]:
    """Yield the first wrap that the model can come from, and that nothing on the way to the call excludes."""
    for shard in shards(script.tree, model):
        if (shard.is_nested or not is_inner) and not _excludes(script, call, shard):
            yield Asked(call, test, shard, call, shard.tree is script.tree)
            return


def _excludes(script: Script, call: ast.Call, shard: Shard) -> bool:
    """Whether a test on the way to a call can be about the one on the way to the wrap, or about wrappers at all."""
    made = {(ast.unparse(each.test), each.holds) for each in shard.guards}
    words = {word for each in shard.guards for word in _words(each)}
    others = [each for each in script.guards(call) if (ast.unparse(each.test), each.holds) not in made]
    return any(words & _words(each) or KINDS.search(ast.unparse(each.test)) for each in others)


def _words(guard: Guard) -> set[str]:
    """Return what a test asks: the last names of what it reads."""
    read = [each for each in ast.walk(guard.test) if isinstance(each, (ast.Name, ast.Attribute))]
    held = {id(each.value) for each in read if isinstance(each, ast.Attribute)}
    return {(dotted(each) or "").rpartition(".")[2] for each in read if id(each) not in held} - {""}
