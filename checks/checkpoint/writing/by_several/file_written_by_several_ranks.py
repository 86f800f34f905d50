"""Several ranks write one and the same file.

## What happens

Each rank runs the same script. What opens a file with mode "w" empties it: a log, a table of results, a cache that
every rank writes holds what the last rank wrote, or a mixture, and a rank that reads it at that moment reads a part. A
file that every rank appends to has each line once for each rank.

## How to be sure

ddpdoctor (`ddpdoctor run`) sees the same line open the same path to write on several ranks, with no communication on
one of them that the other has not made: nobody waits for his turn. Writes by torch.save are another
ailment (checkpoint-written-by-several-ranks). Files of loggers, lock files, files that are opened to change a part of
them, and those that a library opens by itself are not looked at. Appending is a note, since lines that name their rank
are right. Ranks on several hosts are compared host by host.

## How to mend it

Let rank 0 write. What others read is written beside its name and renamed, `os.replace(f"{path}.tmp", path)`, and a
barrier lets them wait. What each rank has to say goes to a file of its own, `f"log.{rank}.csv"`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: Python documentation, "open", modes.
"""

from __future__ import annotations

from collections.abc import Iterator
from linecache import getline

from ddpdoctor.check import Ailment, Evidence, FileOpened, Finding, Fix, Severity, Training, place, watch

AILMENT = Ailment("DDP815", Severity.WARNING)


@watch(FileOpened)
def while_training(event: FileOpened, training: Training) -> Iterator[Finding]:
    """Look for another rank that opened the same path to write, at the same line, without having waited."""
    if not event.writes or event.rank is None:
        return
    others = training.of(FileOpened, path=event.path, writes=True, site=event.site, communications=event.communications)
    ranks = {each.rank: each for each in others if each.rank is not None}
    if len(ranks) < 2 or _is_one_of_several(event, training):  # noqa: PLR2004 - one rank alone
        return
    how = "append to" if event.appends else "write"
    name = event.path.rpartition("/")[2]
    yield Finding(
        f"{len(ranks)} ranks {how} {event.path}: "
        + ("each line is there once for each of them" if event.appends else "what is left is what the last one wrote"),
        tuple(
            Evidence(
                f"opens {name} to {'append' if each.appends else 'write it anew'}",
                "one rank alone, or a file for each rank",
                f"rank {rank}, {each.site}",
            )
            for rank, each in sorted(ranks.items())[:4]
        ),
        _fix(event, training, name),
        place(event.site),
        severity=Severity.NOTE if event.appends else None,
    )


def _is_one_of_several(event: FileOpened, training: Training) -> bool:
    """Whether the same line has opened another file on several ranks before, as one that copies a folder does."""
    here = training.of(FileOpened, writes=True, site=event.site, communications=event.communications)
    before: dict[str, set[int | None]] = {}
    for each in here:
        if each.path != event.path and each.time < event.time:
            before.setdefault(each.path, set()).add(each.rank)
    return any(len(ranks) > 1 for ranks in before.values())


def _fix(event: FileOpened, training: Training, name: str) -> Fix:
    """Return the line behind a test that is true on one rank, in the words of the framework that trains."""
    framework = training.framework
    test = framework.first if framework is not None else "torch.distributed.get_rank() == 0"
    line = getline(event.site.file, event.site.line).strip() if event.site else ""
    line = line or f"with open({name!r}, {'a' if event.appends else 'w'!r}) as file: ..."
    return Fix("let rank 0 write", diff=f"+if {test}:\n-{line}\n+    {line}")
