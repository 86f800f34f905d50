"""A script that starts processes starts them again when they import it.

## What happens

A process that is started by spawn (mp.spawn, mp.start_processes, a DataLoader's workers on macOS and Windows) imports
the main script anew to find the function that it is to run. Without `if __name__ == "__main__":` that import runs the
launch once more, within a process that is not yet up, and Python refuses: "An attempt has been made to start a new
process before the current process has finished its bootstrapping phase".

## How to be sure

The traceback goes through `_fixup_main_from_path` of multiprocessing/spawn.py into the script's own
line that starts the processes.

In a source (`ddpdoctor lint`): the top of a file that no other imports calls mp.spawn, or a function of the file that
does, and nothing around it asks for `__name__`.

## How to mend it

Put what launches under `if __name__ == "__main__":`, or start with torchrun, which imports nothing.

## Versions and sources

Holds for all versions of torch. Source: Python documentation, "multiprocessing", "Safe importing of main module".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import SPAWN, Ailment, Finding, Fix, Record, Severity, is_open, keyword, lint, log_pattern

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP417", Severity.ERROR)


@log_pattern(
    r"An attempt has been made to start a new process before the"
    r"|in _fixup_main_from_path\n(?s:.)*?RuntimeError: context has already been set"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what multiprocessing says in the process that was started."""
    yield Finding(
        "the script starts its processes again when they import it: the launch is not under __main__",
        (record.proof(match, 'if __name__ == "__main__": around the launch'),),
        Fix(
            "launch only where the script is the program",
            diff='-mp.spawn(train, nprocs=world_size)\n+if __name__ == "__main__":\n'
            "+    mp.spawn(train, nprocs=world_size)",
        ),
        record.place,
    )


GUARD = 'if __name__ == "__main__":'


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a launch that the top of the file makes, whoever imports it."""
    if script.cells is not None or "__name__" in script.text or project.is_imported():
        return  # a notebook is no module; of a guard somewhere, or a module for others, nothing is known
    for spawn in script.calls(*SPAWN):
        if keyword(spawn, "start_method") is not None or is_open(spawn):
            continue
        for call in _at_the_top(script, spawn):
            text = ast.get_source_segment(script.text, call) or ""
            yield Finding(
                "the processes that are started here import this file, and start them again: it is not under __main__",
                (script.seen(call, GUARD), script.seen(spawn)),
                Fix(
                    "launch only where the script is the program",
                    edits=(script.replaced(call, f"{GUARD}\n    {text}"),),
                ),
                script.place(call),
            )


def _at_the_top(script: Script, spawn: ast.Call) -> Iterator[ast.Call]:
    """Yield the calls that stand by themselves in the module's body: that of spawn, or of the function it is in."""
    function = script.function(spawn)
    if isinstance(function, ast.FunctionDef) and (script.guards(spawn) or script.function(function) is not None):
        return
    for statement in script.module.body:
        match statement:
            case ast.Expr(value=ast.Call() as call) if call is spawn and function is None:
                yield call
            case ast.Expr(value=ast.Call(func=ast.Name()) as call) if function is not None:
                if script.names_function(call.func) is function:
                    yield call
