"""What a coroutine awaits that a line has an asyncio loop run: read off its source, as no stack shows it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.source.text.lines import calls_at, tree_of
from ddpdoctor.source.text.names import resolve
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.stuck.looks.spy import Stack

RUNS = ("asyncio.run", "run_until_complete")
MOST = 3


def awaited_there(stack: Stack) -> str:
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
