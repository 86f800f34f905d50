"""Several ranks make or delete one and the same file or directory.

## What happens

Every rank runs the same script. Where it says `if not exists: makedirs`, `rmtree`, `unlink` or `rename` on a path
that does not depend on the rank, one rank is first and others fail: FileExistsError, FileNotFoundError or "Directory
not empty", on some ranks, on some days. The same race leaves truncated checkpoints and half-unpacked data sets
without an error.

## How to be sure

Only some ranks fail, and the next run fails on others or not at all. A path that an earlier run left behind fails on
every start, also with one rank: `ls -ld --time-style=full-iso PATH` then shows a time before this start.

In a source (`ddpdoctor lint`): `os.makedirs` without `exist_ok`, after a test whether the folder is there, where every
rank comes.

## How to mend it

Best first: rank 0 alone prepares the path, and a barrier lets the others wait for it; or
`os.makedirs(path, exist_ok=True)` on all ranks, which helps against FileExistsError only.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: Python documentation, "os.makedirs"; threads of training frameworks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    given,
    is_open,
    keyword,
    lint,
    log_pattern,
)

from ...._frameworks.trainer import runs_in_ranks
from ...._hosts.launched import SEVERAL
from ...._hosts.ranks_of_hosts import LOCAL
from ...._scripts.doubts import own_disks
from ...._scripts.source import is_own
from .._shared_path import (
    depends_on_rank,
    diff_guarded,
    is_made_by_another,
    is_reached,
    on_one_rank,
)
from ._files_written import is_caught, is_named, saves_tokenizer, written, written_by_helpers
from ._helpers_that_write import written_abroad
from ._made_by_all import asks_for, is_made_by_some, made, trains_by_accelerate
from ._races import FIX, GONE, PATHS, raced

if TYPE_CHECKING:
    import ast

    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP853", Severity.ERROR)
OF_STREAMING = r"/?\d{6}_[a-z_]+"  # its shared memory: another check's
EXISTS = rf"FileExistsError: \[(?:Errno 17|WinError 183)\] [^:\n]+: {PATHS}"


@log_pattern(EXISTS)
def made_by_another(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield the name of the path, and who failed at it; not where a file stands in the place of a folder."""
    path = match["target"] or match["path"]
    if "exist_ok=True" in record.text or re.fullmatch(OF_STREAMING, path):
        return
    ranks = sorted(log.ranks(EXISTS))
    yield Finding(
        f"{path} exists already: "
        + (f"rank {', '.join(map(str, ranks))} failed, another made it" if any(ranks) else "ranks race to make it"),
        (record.proof(match, "one rank makes it, or exist_ok=True"),),
        FIX,
        record.place,
        ambiguity=None
        if any(ranks)
        else Ambiguity(
            ("several ranks make it at once", "an earlier run left it, and every start fails"),
            f"ls -ld --time-style=full-iso '{path}'   # older than this start: an earlier run left it",
        ),
    )


@log_pattern(GONE, context=(LOCAL, SEVERAL))
def deleted_by_another(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield the name of the path that was gone, or full, when a process wanted to delete or rename it."""
    if (finding := raced(record, match, log)) is not None:
        yield finding


@log_pattern(r"Failed to open local file '(?P<path>[^'\n]*\.incomplete[^'\n]*)'\. Detail: \[errno 2\]")
def renamed_by_another(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Take the folder that `datasets` writes to, and renames when it is done."""
    yield Finding(
        f"{match['path']} is gone while it is written: another process prepares the same data set, and was done first",
        (record.proof(match, "one process prepares the data set"),),
        Fix(
            "let rank 0 prepare the data set first, and the others wait; jobs of one user need caches of their own",
            diff="+if rank == 0:\n+    load_dataset(name)\n+torch.distributed.barrier()\n data = load_dataset(name)",
            command="export HF_DATASETS_CACHE=/path/of/this/job",
        ),
        record.place,
    )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a folder that every rank makes after it has seen that it is not there."""
    if script.frameworks - STARTED_BY_LAUNCHERS:
        return
    for call, path, right in made(script):
        if depends_on_rank(script, path) or is_made_by_another(script, path) or is_made_by_some(script, call, path):
            continue
        asked = [guard for guard in script.guards(call) if asks_for(script, guard.test, path)]
        if not asked or is_caught(script, call):
            continue
        if is_reached(script, call, joins=runs_in_ranks(script, project)):
            yield Finding(
                f"all ranks make the folder {script.code(path)}: those that saw none, and come second, fail",
                (script.seen(call, right), script.seen(asked[0].test)),
                Fix("allow that it is there already", edits=(script.replaced(call, right),)),
                script.place(call),
                severity=Severity.WARNING,
                ambiguity=own_disks(script, project),
            )


REMOVERS = ("os.remove", "os.unlink", "os.rmdir", "os.rename", "shutil.rmtree", "shutil.move")


@lint
def removals_in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a file or folder that every rank deletes or moves."""
    if script.frameworks - STARTED_BY_LAUNCHERS:
        return
    for call in script.calls(*REMOVERS):
        path = given(call, 0, "path")
        if path is None or is_open(call) or depends_on_rank(script, path) or is_caught(script, call):
            continue
        if keyword(call, "ignore_errors") is not None or not is_named(script, path):
            continue
        if is_reached(script, call, joins=runs_in_ranks(script, project)):
            name = script.code(call.func).rpartition(".")[2]
            done = "moves" if name in {"rename", "move"} else "deletes"
            yield Finding(
                f"every rank {done} {script.code(path)}: one is first, and the others fail",
                (script.seen(call, "on rank 0 alone"),),
                Fix(f"let rank 0 alone call {name}, and the others wait", diff=diff_guarded(script, call)),
                script.place(call),
                ambiguity=own_disks(script, project),
            )


STARTED_BY_LAUNCHERS = frozenset({"accelerate", "deepspeed", "horovod", "transformers"})
"""Frameworks whose scripts run in each rank from their first line, and that make no folders of the user's."""


@lint
def files_in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a file that every rank opens to write it anew, or a picture that each of them draws."""
    by_accelerate = script.frameworks <= {"accelerate", "transformers"} and trains_by_accelerate(script, project)
    if not by_accelerate and not is_own(script):
        return
    here = ((*each, script.code(each[1])) for each in (*written(script), *written_by_helpers(script)))
    for call, path, code in (*here, *written_abroad(script)):
        is_one = is_named(script, path) or _is_made_once(script, call, path)
        if is_one and is_reached(script, call, joins=script.runs_in_ranks):
            yield Finding(
                f"every {'process' if by_accelerate else 'rank'} writes {code}: what is left is of the last one, or of "
                "several",
                (script.seen(call, on_one_rank(script)),),
                Fix("let rank 0 write it", diff=diff_guarded(script, call)),
                script.place(call),
                severity=Severity.WARNING,
                ambiguity=own_disks(script, project),
            )


def _is_made_once(script: Script, call: ast.Call, path: ast.expr) -> bool:
    """Whether a tokenizer is saved where there is none yet, for whoever comes afterwards."""
    asked = any(asks_for(script, each.test, path) for each in script.guards(call))
    return asked and saves_tokenizer(script, call)
