"""Ranks wait for the lock of an extension's build, and the process that made it is gone.

## What happens

DeepSpeed, and whatever calls `torch.utils.cpp_extension.load`, builds its operators when they are first used. The first
rank makes a file `lock` in the folder of the build; the others wait until it is gone. A process that is killed
in the middle (a time limit, Ctrl-C, no memory left for the compiler) leaves it behind, and from then on every start
waits for ever: without a word, without using the CPU, before the process group is joined, so that no time-out ends it.

## How to be sure

The builder keeps the file open until it is done. `fuser -v ~/.cache/torch_extensions/*/*/lock` shows the process that
builds; where it shows none, nobody does. `ddpdoctor run` looks at that itself, and where other hosts or containers can
share the folder it demands an age of an hour as well. The last line of the log is "Using
.../torch_extensions/py311_cu124 as PyTorch extensions root..."; torch 2.6 and later warn after 300 seconds.

## How to mend it

    rm ~/.cache/torch_extensions/py311_cu124/fused_adam/lock

The next start builds. Build before the training, with no time limit (`DS_BUILD_OPS=1 pip install deepspeed`), or give
each job a folder of its own by TORCH_EXTENSIONS_DIR.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torch/utils/file_baton.py, `FileBaton.wait`; torch/utils/cpp_extension.py,
`_jit_compile`. Seen with DeepSpeed 0.19, whose CPU build was killed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    BuildLockLeft,
    Evidence,
    Finding,
    Fix,
    Record,
    Severity,
    Training,
    log_pattern,
    place,
    shell_join,
    watch,
)

AILMENT = Ailment("DDP133", Severity.ERROR)
MINUTE, HOUR = 60, 3600


@watch(BuildLockLeft)
def while_training(event: BuildLockLeft, training: Training) -> Iterator[Finding]:
    """Report it once, however many ranks wait."""
    waiting = training.of(BuildLockLeft, path=event.path)
    if waiting[0] is not event:
        return
    who = f"rank {event.rank}" if event.rank is not None else f"process {event.pid}"
    yield Finding(
        f"{who} waits for the lock of a build that is gone: no process here has {event.path} open",
        (Evidence(f"made {_ago(event.age)} ago, open in no process", "a build, which keeps it open", event.path),),
        Fix(
            "remove the lock; the next start builds the extension, which must not be ended meanwhile",
            command=shell_join(("rm", event.path)),
        ),
        place(event.site, rank=event.rank),
    )


@log_pattern(r'Waited on lock file "(?P<path>[^"\n]+)" for (?P<seconds>\d+) seconds')
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read torch's warning, which does not tell whether somebody builds."""
    yield Finding(
        f"for {match['seconds']} seconds a rank has waited for the lock of an extension's build",
        (record.proof(match, "a build of some minutes, under way"),),
        Fix("where no process has the lock open, remove it", command=shell_join(("rm", match["path"]))),
        record.place,
        ambiguity=Ambiguity(
            ("a build that was killed left the lock behind", "another rank or job builds, and is not done yet"),
            shell_join(("fuser", "-v", match["path"])) + "  # the process that builds; none: it was left behind",
        ),
    )


def _ago(seconds: float) -> str:
    if seconds >= 2 * HOUR:
        return f"{seconds / HOUR:.0f} hours"
    return f"{seconds / MINUTE:.0f} minutes" if seconds >= 2 * MINUTE else f"{seconds:.0f} seconds"
