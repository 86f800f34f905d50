"""The one value that a Lightning script logs over all ranks behind a test that ranks can answer differently."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Site, calls_at, decided_at, last_name, tree_of

from ...._scripts.set_at import with_imported
from ..calls._compared import at_odds

if TYPE_CHECKING:
    from ddpdoctor.check import Guard, Position, Stalled

RUNS = frozenset("fit validate test".split())
LOGS = frozenset({"log", "log_dict"})
LIGHTNING = ("lightning", "pytorch_lightning")
STEP = re.compile(r"_step$|^on_\w+_batch_(?:start|end)$")
COUNTED = {
    f"self.{owner}{name}" for owner in ("", "trainer.") for name in ("current_epoch", "global_step", "sanity_checking")
}
"""What all ranks count alike."""


class Logged(NamedTuple):
    """Two ranks within Trainer.fit, say, in different collectives; the line that logs, what it logs, and the test."""

    one: Position
    other: Position
    site: Site
    name: str
    guard: Guard


def logged_under_a_test(event: Stalled) -> Logged | None:
    """Find it where two ranks are at one line that runs a Trainer; None where several lines log behind such tests."""
    pair = at_odds(event)
    site = pair[0].site if pair is not None else None
    if pair is None or site is None or not any(last_name(each.func) in RUNS for each in calls_at(site.file, site.line)):
        return None
    found = [(file, call) for file in with_imported([site.file]) if _is_lightnings(file) for call in _synced(file)]
    tested = [(file, call, tests[0]) for file, call in found if (tests := _deciding(file, call))]
    if len(tested) != 1:
        return None
    ((file, call, guard),) = tested
    name = ast.unparse(call.args[0]) if call.args else "a value"
    return Logged(*pair, Site(file, call.lineno, ""), name, guard)


def _deciding(file: str, call: ast.Call) -> list[Guard]:
    """List the tests before a call but for those of the batch's number, and of what the Trainer counts."""
    function = tree_of(file).function(call)
    number = function.args.args[2:3] if isinstance(function, ast.FunctionDef) else []
    counted = {each.arg for each in number if STEP.search(getattr(function, "name", ""))}
    return [each for each in decided_at(file, call.lineno) if not _names(each.test) <= counted | COUNTED]


def _names(test: ast.expr) -> set[str]:
    """Return what a test reads: names, and attributes of the module or of its Trainer."""
    owners = {id(each.value) for each in ast.walk(test) if isinstance(each, ast.Attribute)}
    read = (each for each in ast.walk(test) if isinstance(each, (ast.Name, ast.Attribute)) and id(each) not in owners)
    return {ast.unparse(each) for each in read}


def _is_lightnings(file: str) -> bool:
    tree = tree_of(file)
    named = [each.name for node in tree.of(ast.Import) for each in node.names]
    named += [node.module or "" for node in tree.of(ast.ImportFrom)]
    return any(each.partition(".")[0] in LIGHTNING for each in named)


def is_of_rank_zero(call: ast.Call) -> bool:
    """Whether a call logs on the first rank alone, if it is told to: Lightning reduces nothing then, with sync_dist."""
    told = next((each.value for each in call.keywords if each.arg == "rank_zero_only"), None)
    return told is not None and not (isinstance(told, ast.Constant) and not told.value)


def _synced(file: str) -> list[ast.Call]:
    """List the calls of a file that log a value over all ranks."""
    return [
        each
        for each in tree_of(file).of(ast.Call)
        if isinstance(each.func, ast.Attribute)
        and each.func.attr in LOGS
        and not is_of_rank_zero(each)
        and any(
            word.arg == "sync_dist" and not (isinstance(word.value, ast.Constant) and not word.value.value)
            for word in each.keywords
        )
    ]
