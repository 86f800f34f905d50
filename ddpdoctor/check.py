"""Everything that the author of a check needs; a check imports from here alone.

A check's file reads top to bottom like an article: the docstring is the page, its first line the title; then the
ailment; then the facets. The file's name is the slug and its folder the area, so they cannot drift apart::

    AILMENT = Ailment("DDP501", Severity.ERROR)

    @probe                       # asked by ddpdoctor check
    def in_a_small_job(model: ModelExam) -> Iterator[Finding]: ...

    @watch(Failed)               # shown each event of this type, by ddpdoctor run and install()
    def while_training(event: Failed, training: Training) -> Iterator[Finding]: ...

    @lint                        # shown each Python file, by ddpdoctor lint
    def in_source(script: Script) -> Iterator[Finding]: ...

    @log_pattern(r"Expected to have finished reduction in the prior iteration")     # ddpdoctor explain
    def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]: ...

Where the same thing is seen and exactly one of several checks may speak of it, they are a family: a module of their
folder (``_name.py``) has an enum of what it can be and a function that decides, and offers a decorator of its own,
made of ``watch`` or ``log_pattern`` and a ``Claim`` (see ``checks/collectives/hangs/_hangs.py``). Each member is
claimed by exactly one check, or the checks do not load.

What a facet needs is named by its parameters (``ddpdoctor.facets.INPUTS``); a name that nobody supplies is refused
when the check is loaded. A facet yields findings. It raises ``NotRun("why")`` where there is nothing to look at.

The names, and the module that defines each, stand in ``check.pyi``, which type checkers and editors read as well. A
module is imported when a name of it is first asked for: ``explain`` loads no probe.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

from ddpdoctor.facets import EVENTS, WITHOUT_EVENTS

DEFINED_IN = {
    name.name: statement.module
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(statement, ast.ImportFrom) and statement.module
    for name in statement.names
}


class Unseen(type):
    """An event, or a kind of one, that lint has no use for: it can be named, and its members can."""

    def __getattr__(cls, name: str) -> object:
        """Answer for any member; it is never looked at."""
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


def __getattr__(name: str) -> Any:
    """Import a name from the module that defines it."""
    if name not in DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = DEFINED_IN[name]
    if WITHOUT_EVENTS.get() and module.startswith(EVENTS):
        return Unseen(name, (), {})
    value = globals()[name] = getattr(importlib.import_module(DEFINED_IN[name]), name)
    return value
