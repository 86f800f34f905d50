"""What a coroutine awaits that a line has an asyncio loop run: read off its source, as no stack shows it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.source.text.lines import calls_at, tree_of
from ddpdoctor.source.text.names import resolve
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.stuck.looks.spy import Stack

LOOP = "/asyncio/base_events.py"
DEEP = 4  # frames
RUNS = ("asyncio.run", "run_until_complete")
MOST = 3


def of_loop(stack: Stack) -> Awaited | None:
    """Return what an asyncio loop waits for where the kernel knows nobody who could wake it."""
    if not any(each.file.endswith(LOOP) and each.function.endswith("_run_once") for each in stack.frames[:DEEP]):
        return None
    inner = _awaited_there(stack) or "a task awaits what never comes"
    return Awaited(
        f"something that wakes its asyncio loop, which has no connection and no timer: {inner}",
        "await it with a limit, asyncio.wait_for(..., timeout=60), and print asyncio.all_tasks() where that runs out",
    )


def _awaited_there(stack: Stack) -> str:
    """Return in words what the coroutine of the innermost user's line awaits; empty where that is not known."""
    frame = next((each for each in stack.frames if is_users(each.file)), None)
    if frame is None:
        return ""
    tree = tree_of(frame.file)
    for call in calls_at(frame.file, frame.line):
        path = resolve(tree, call.func) or ast.unparse(call.func)
        match call.args:
            case [ast.Call(func=ast.Name(id=name))] if path.endswith(RUNS):
                made = [each for each in tree.of(ast.AsyncFunctionDef) if each.name == name]
                inner = [each for each in tree.of(ast.Await) if len(made) == 1 and tree.function(each) is made[0]]
                told = [f"{ast.unparse(each.value)} at {Path(frame.file).name}:{each.lineno}" for each in inner[:MOST]]
                return f"{name} awaits {' or '.join(told)}" if told and len(inner) <= MOST else ""
    return ""
