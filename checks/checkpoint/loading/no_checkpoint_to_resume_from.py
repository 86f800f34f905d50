"""DeepSpeed found no checkpoint to load, and said so in a warning alone.

## What happens

`engine.load_checkpoint(folder)` reads the name of the newest checkpoint from the file `latest` in the folder. Where
there is none (another folder, a job that never came to save, storage that this host does not see) it raises nothing:
it warns, and returns `(None, None)`. A script that does not look at what it returned goes on from the beginning, with
new weights, and says that it has resumed, or ends where it reads the state: "'NoneType' object has no attribute 'get'".
In the first run of a script that always tries, the warning is as it should be.

## How to be sure

The warning names the file: "Unable to find latest file at ...". Does it exist on each host?

## How to mend it

    path, client_state = engine.load_checkpoint(folder)
    if path is None and args.resume:
        raise SystemExit(f"{folder} has no checkpoint")

## Versions and sources

Seen with DeepSpeed 0.19.8. Source: deepspeed/runtime/engine.py, `load_checkpoint`. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Record,
    Role,
    Severity,
    log_pattern,
    statement_at,
    tree_of,
)

AILMENT = Ailment("DDP1860", Severity.NOTE)

LOOK = Fix(
    "look at what load_checkpoint returns",
    diff="-engine.load_checkpoint(folder)\n+path, state = engine.load_checkpoint(folder)\n"
    '+if path is None and resuming:\n+    raise SystemExit(f"{folder} has no checkpoint")',
)
TAG = Fix(
    "name the checkpoint by its tag, or let save_checkpoint write `latest` (save_latest=True, as by default)",
    diff='-path, state = engine.load_checkpoint(folder)\n+path, state = engine.load_checkpoint(folder, tag="step8")\n'
    '+if path is None:\n+    raise SystemExit(f"{folder} has no checkpoint")',
)


@log_pattern(
    r"Unable to find latest file at (?P<path>[^\n,]{1,500}), if trying to load latest checkpoint",
    role=Role.HARMLESS,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the file that is not there."""
    yield Finding(
        f"load_checkpoint found no checkpoint: {match['path']} is not there, and the training begins anew",
        (record.proof(match, "a checkpoint, unless this is the first run"),),
        LOOK,
        record.place,
    )


@log_pattern(r"'NoneType' object (?:has no attribute '\w{1,80}'|is not (?:subscriptable|iterable|a mapping))")
def where_it_is_read(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Look whether what is None was returned by the engine, which has found nothing."""
    file, line = record.place.file, record.place.line
    loaded = _loaded(file, line) if file and line else None
    if loaded is not None:
        yield Finding(
            "load_checkpoint of DeepSpeed found no checkpoint, and returned None, None: nothing in its folder is "
            "named as the newest",
            (
                record.proof(match, "a state that was loaded"),
                Evidence(ast.unparse(loaded), "a folder with a file `latest`, or a tag", f"{file}:{loaded.lineno}"),
            ),
            TAG,
            record.place,
            severity=Severity.ERROR,
        )


def _loaded(file: str, line: int) -> ast.Assign | None:
    """Return the line by which what a line reads was returned by DeepSpeed's ``load_checkpoint``."""
    tree = tree_of(file)
    statement = statement_at(tree, line)
    if statement is None or not any(
        "deepspeed" in ast.unparse(each) for each in (*tree.of(ast.Import), *tree.of(ast.ImportFrom))
    ):
        return None
    read = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
    for each in tree.of(ast.Assign):
        match each:
            case ast.Assign(
                targets=[ast.Tuple(elts=names)], value=ast.Call(func=ast.Attribute(attr="load_checkpoint"))
            ) if each.lineno < line and tree.function(each) is tree.function(statement):
                if read & {name.id for name in names if isinstance(name, ast.Name)}:
                    return each
    return None
