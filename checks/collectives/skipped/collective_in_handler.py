"""A collective is called by a signal handler, or by the end of an object: at another moment on each rank.

## What happens

Python runs the handler of a signal between two instructions of whatever the rank does. A scheduler sends its signal to
one process, or to each at its own time; so one rank calls the barrier of its handler in the midst of a step, and it
meets another rank's averaging of gradients. `__del__` and `weakref.finalize` are the same: the garbage collector calls
them when it likes, on each rank at another time. Over NCCL all wait until the time-out, gloo can end a process.

## How to be sure

A rank waits in a function that is given to `signal.signal`, or that is called `__del__`, and another rank waits
elsewhere. Both lines are told.

## How to mend it

Let the handler set a flag, and let the loop ask all ranks for it:

    signal.signal(signal.SIGUSR1, lambda *_: asked.set())
    ...
    stop = torch.tensor(float(asked.is_set()))
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    if stop.item():
        save()

What `__del__` does belongs in a method `close()`, called by all ranks at one line.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: Python documentation, "signal", execution of Python signal handlers, and
`object.__del__`; torch.distributed documentation, "Collective functions".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    COLLECTIVES,
    Ailment,
    Caller,
    Evidence,
    Finding,
    Fix,
    Severity,
    Stalled,
    callback_of,
    calls_at,
    last_name,
    lint,
    place,
)

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._told import seen, short, table, where
from ..hangs.handed._callbacks import in_callback

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP1783", Severity.ERROR)
FIXES = {
    Caller.SIGNAL: Fix(
        "let the handler set a flag, and the loop ask all ranks for it",
        diff="-signal.signal(signal.SIGUSR1, {name})\n+signal.signal(signal.SIGUSR1, lambda *_: asked.set())\n"
        "+stop = torch.tensor(float(asked.is_set()))   # in the loop, on all ranks\n"
        "+dist.all_reduce(stop, op=dist.ReduceOp.MAX)\n+if stop.item():\n+    {name}(None, None)",
    ),
    Caller.OBJECT: Fix(
        "call it at one line, on all ranks",
        diff="-def {name}(self):\n+def close(self):\n     {code}\n+thing.close()   # on all ranks, before the end",
    ),
}
AT_A_LINE = "-def {name}(self):\n-    {code}\n+thing.{method}()   # on all ranks, before the end"


def _fix(caller: Caller, name: str, call: ast.Call | None) -> Fix:
    """Return it with the call that the function makes: a method of the object's own stays what it is."""
    code = ast.unparse(call) if call is not None else "dist.barrier()"
    method = code.removeprefix("self.").removesuffix("()")
    own = caller is Caller.OBJECT and f"self.{method}()" == code and method.isidentifier()
    fix = FIXES[caller]
    return replace(fix, diff=(AT_A_LINE if own else fix.diff).format(name=name, code=code, method=method))


@on_hang(Hang.CALLED_BACK)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Yield the function, what calls it, and where the other rank is meanwhile."""
    found = in_callback(event)
    assert found is not None  # noqa: S101 - else it would be another hang
    rank, callback = found.rank, found.callback
    yield Finding(
        f"rank {rank.rank} {where(rank).partition(' at ')[0]} in {callback.name}() at {short(found.at)}, which "
        f"{callback.caller.value} calls whenever it comes; rank {found.other.rank} {where(found.other)}",
        (
            Evidence(
                f"{callback.name}() is called by {callback.caller.value}",
                "collectives in lines that all ranks come to in one order",
                f"line {callback.line}",
            ),
            *seen(event),
        ),
        _fix(callback.caller, callback.name, next(iter(calls_at(found.at.file, found.at.line)), None)),
        place(found.at, rank=rank.rank),
        table=table(event),
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for collectives in such functions."""
    by_accelerate = script.nodes(ast.Call) if "accelerate" in script.imported else []
    waits = [each for each in by_accelerate if last_name(each.func) == "wait_for_everyone"]
    for call in (*script.calls(*COLLECTIVES), *waits):
        callback = callback_of(script.tree, call)
        if callback is not None and callback.caller in FIXES:
            yield Finding(
                f"{script.code(call.func)} is called in {callback.name}(), which {callback.caller.value} calls: at "
                "another moment on each rank",
                (script.seen(call, "a line that all ranks come to in one order"),),
                _fix(callback.caller, callback.name, call),
                script.place(call),
                severity=Severity.WARNING,
            )
