"""mp.spawn is given other arguments than its function takes.

## What happens

`mp.spawn` calls its function with the number of the process first, then with `args`. A function that takes fewer or
more parameters ends every process with a TypeError. So does `args=(args)`: brackets without a comma make no tuple, and
what is spread is the namespace itself.

## How to be sure

In a source (`ddpdoctor lint`): the function stands in the file, and its parameters are counted.

## How to mend it

    def worker(rank, world_size): ...
    mp.spawn(worker, args=(world_size,), nprocs=world_size)

## Versions and sources

Source: torch.multiprocessing documentation, "Spawning subprocesses". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, given, is_open, lint, log_pattern

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP471", Severity.ERROR)
CALLS = re.compile(
    r"in (?P<function>\w+)\n[\s|]*(?:fn\(i, \*args\)|main_func\(\*args\)|self\.launcher\(\*args\))\n"
    r"[^\n]{0,9}TypeError:"
)
STARTERS = frozenset({"_wrap", "_distributed_worker", "launch", "__call__"})
"""The functions of torch's spawn, detectron2's launch and accelerate's notebook_launcher that call the user's."""


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Count what spawn passes, and the parameters of the function."""
    for call in script.calls("torch.multiprocessing.spawn"):
        named, passed = given(call, 0, "fn"), given(call, 1, "args")
        function = script.names_function(named) if isinstance(named, ast.Name) and not is_open(call) else None
        if passed is not None and (_is_single(script, passed)):
            yield Finding(
                f"mp.spawn is given {script.code(passed)} as args, which is no tuple: a TypeError in each process",
                (script.seen(passed, f"args=({script.code(passed)},)"),),
                Fix("put a comma behind it", edits=(script.replaced(passed, f"({script.code(passed)},)"),)),
                script.place(call),
            )
            continue
        if function is None or not isinstance(passed, (ast.Tuple, type(None))):
            continue
        if any(isinstance(each, ast.Starred) for each in (passed.elts if passed else ())):
            continue
        count = 1 + len(passed.elts if passed else ())
        least, most = _takes(function)
        if not least <= count <= (most if most is not None else count):
            wanted = least if least == most else f"{least} to {most}"
            yield Finding(
                f"{function.name} takes {wanted} arguments, and mp.spawn passes {count}: a process's number, and args",
                (script.seen(call, "the number of the process comes first"), script.seen(function)),
                Fix("take the rank first, and the rest as args has it"),
                script.place(call),
            )


def _is_single(script: Script, passed: ast.expr) -> bool:
    """Whether what is passed is the options of the command line, or a number: ``args=(args)`` is ``args=args``."""
    if isinstance(passed, ast.Constant):
        return isinstance(passed.value, (int, float)) and not isinstance(passed.value, bool)
    return script.is_parsed(passed)


def _takes(function: ast.FunctionDef) -> tuple[int, int | None]:
    """Return how many arguments by place a function needs, and how many it takes; None for any number."""
    places = len(function.args.posonlyargs) + len(function.args.args)
    return places - len(function.args.defaults), None if function.args.vararg else places


@log_pattern(r"TypeError: '(?P<what>[\w.]+)' object is not callable")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise by the line that raised it that a launcher of processes was to call what it was given."""
    if record.frames and (found := CALLS.search(record.text)) is not None and found["function"] in STARTERS:
        what = match["what"].rpartition(".")[2]
        called = "nothing" if what == "NoneType" else f"an object of {what}"
        yield Finding(
            f"the processes are to call {called}: what starts them "
            "was given the result of the function, not the function",
            (record.proof(match, "a function"),),
            Fix(
                "give it the function's name, without brackets, and its arguments apart",
                diff="-mp.spawn(main(args), nprocs=2)\n+mp.spawn(main, args=(args,), nprocs=2)",
            ),
            record.place,
        )
