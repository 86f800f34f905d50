"""A rank reads a file that another rank has not finished writing.

## What happens

Rank 0 prepares a data set, a vocabulary or a cache, and the other ranks read it. Without a barrier they come too
early: the file is not there yet (FileNotFoundError), or they read the part that has been written so far and train on
that, without an error. To wait until the path exists is not enough: it exists from the moment that it is opened.

## How to be sure

In a training (`ddpdoctor run`) ddpdoctor takes note of the files that ranks write, and of their size when another rank
reads them before the first step. Reported is a file that is larger at that rank's first step than it was when it read
it, though nobody had opened it anew; a file that a rank failed to find and that another rank wrote; and one that it
found cut, and that another rank had opened to write. Where the launcher has ended the writer before it came to that,
the source is read: the path that a rank did not find is given to a call that one rank alone makes, a few lines before,
and nothing between them waits.

## How to mend it

    if dist.get_rank() == 0:
        prepare(path)
    dist.barrier()
    data = read(path)

Without a process group write beside the name and rename: `os.replace(f"{path}.tmp", path)`.

## Versions and sources

In logs a file that is cut shows as JSONDecodeError, EOFError ("Ran out of input"), "pickle data was truncated" or
BadZipFile. Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"torch.distributed.barrier".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Failed,
    FailedAlone,
    FileGrew,
    FileOpened,
    Finding,
    Fix,
    Log,
    PeerLost,
    Record,
    Severity,
    Training,
    log_pattern,
    place,
    watch,
)

from ...collectives.hangs._losses import Loss, on_loss
from ._made_by_one import made_by_one

AILMENT = Ailment("DDP816", Severity.ERROR)
MEND = Fix(
    "wait for the file, on all ranks",
    diff=" if torch.distributed.get_rank() == 0:\n     prepare(path)\n+torch.distributed.barrier()\n data = read(path)",
)
NOT_FOUND = "FileNotFoundError"


@watch(FileGrew)
def that_grew(event: FileGrew, training: Training) -> Iterator[Finding]:
    """Look for the rank that wrote the rest of a file after this one had read it."""
    reads = training.of(FileOpened, pid=event.pid, path=event.path, writes=False)
    writers = training.of(FileOpened, path=event.path, writes=True)
    if not reads or len(writers) != 1 or event.size < event.before:
        return
    (writer,) = writers
    if writer.pid != event.pid and writer.time < reads[0].time and reads[0].rank is not None:
        yield _finding(reads[0], writer, f"{event.before} bytes of it", f"{event.size} bytes in the end")


@watch(FileOpened)
def when_written(event: FileOpened, training: Training) -> Iterator[Finding]:
    """Look for a rank that had failed to find the file."""
    for failed in training.of(Failed, error=NOT_FOUND):
        yield from _not_found(failed, event, training)


@watch(Failed)
def when_failed(event: Failed, training: Training) -> Iterator[Finding]:
    """Look for a rank that wrote the file after this one did not find it."""
    if event.error == NOT_FOUND:
        for written in training.of(FileOpened, writes=True):
            yield from _not_found(event, written, training)


@watch(FailedAlone)
def when_the_writer_was_ended(event: FailedAlone) -> Iterator[Finding]:
    """Look in the source for what one rank was about to make, and nothing waits for."""
    yield from _about_to_be_made(event.first)


@on_loss(Loss.FILE)
def when_the_writer_lost_it(event: PeerLost) -> Iterator[Finding]:
    """Look in the source for what one rank was about to make, where others noticed that it is gone."""
    if event.first is not None:
        yield from _about_to_be_made(event.first)


def _about_to_be_made(first: Failed) -> Iterator[Finding]:
    made = made_by_one(first)
    if made is not None:
        yield Finding(
            f"rank {first.rank} looks for what one rank alone makes before, and nothing lets it wait: {first.said}",
            (
                Evidence(first.said, "the file, for every rank", f"rank {first.rank}, {made.read}"),
                Evidence(f"{made.code}, {made.guard}", "a barrier behind it, on all ranks", str(made.site)),
            ),
            MEND,
            place(made.read, rank=first.rank),
        )


@watch(Failed)
def when_cut(event: Failed, training: Training) -> Iterator[Finding]:
    """Look for the rank that was writing what this one found cut: what it had opened last to read."""
    reads = training.of(FileOpened, pid=event.pid, writes=False)
    if not reads or not re.search(CUT, event.text):
        return
    read = reads[-1]
    writers = [each for each in training.of(FileOpened, path=read.path, writes=True) if each.pid != event.pid]
    if len(writers) == 1 and writers[0].time < event.time and read.rank is not None:
        said = event.text.strip().rpartition("\n")[2]
        yield _finding(read, writers[0], f"it ends too early: {said}", "the whole file")


def _not_found(failed: Failed, written: FileOpened, training: Training) -> Iterator[Finding]:
    reads = training.of(FileOpened, pid=failed.pid, path=written.path, writes=False)
    missing = [each for each in reads if each.size < 0]
    name = written.path.rpartition("/")[2]
    said = failed.text.strip().rpartition("\n")[2]
    if written.writes and written.pid != failed.pid and missing and missing[-1].time < written.time and name in said:
        yield _finding(missing[-1], written, "before it is there", "")


def _finding(read: FileOpened, written: FileOpened, what: str, end: str) -> Finding:
    return Finding(
        f"rank {read.rank} reads {read.path} {'while' if end else ''}".rstrip()
        + (f" rank {written.rank} still writes it: {what}" if end else f" {what}: rank {written.rank} writes it later"),
        (
            Evidence(
                f"opens it to read at {read.time - written.time:+.2f} s"
                + (f", {read.size} bytes" if end else ", no such file"),
                "after the write",
                f"rank {read.rank}, {read.site}",
            ),
            Evidence(
                f"opens it to write at 0.00 s{f', {end}' if end else ''}", "", f"rank {written.rank}, {written.site}"
            ),
        ),
        MEND,
        place(read.site),
    )


CUT = (
    r"(?:JSONDecodeError: (?:Expecting value: line 1 column 1 \(char 0\)|Unterminated string|Expecting "
    r"[^\n]{1,60}|Extra data)"
    r"|EOFError: Ran out of input|UnpicklingError: (?:pickle data was truncated|unexpected end of data)"
    r"|BadZipFile: File is not a zip file|ArrowInvalid: (?:File is too small|Tried reading schema message"
    r"|[^\n]{0,60}truncated)"
    r"|(?:OSError|ArrowInvalid): Expected to (?:be able to )?read \d+ (?:bytes for message body|metadata bytes)"
    r"|(?:OSError|ArrowInvalid): (?:Not an Arrow file|Invalid flatbuffers message))"
)
IN_CODE = re.compile(
    r"open\((?P<path>[^()\n]{1,120})|(?:load|read|from_pretrained|from_json\w*)\((?P<what>[^()\n]{1,120})"
)


@log_pattern(CUT, plain=True)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Tell a file that some ranks alone found cut from one that is cut for all."""
    ranks = sorted(log.ranks(CUT))
    named = IN_CODE.search(record.code)
    what = (named["path"] or named["what"]).split(",")[0].strip() if named else ""
    what = what if re.search(r"[./'\"]", what) else "a file"  # `f` says nothing
    some = bool(ranks) and 0 not in ranks
    causes = (
        "another rank, or host, still writes it" if some else "it was cut: the disk was full, or the writer was ended",
        "it was cut: the disk was full, or the writer was ended"
        if some
        else "another process writes it anew meanwhile",
        "it is of another kind: an error page, a pointer of git-lfs, an empty answer",
    )
    yield Finding(
        (f"rank {', '.join(map(str, ranks))}" if ranks else "the program")
        + f" read {what} and found it empty or cut"
        + ("; rank 0 did not fail at it" if some else ""),
        (record.proof(match, "the whole file"),),
        MEND
        if some
        else Fix(
            "write it anew, beside its name, and rename it", diff="-write(path)\n+write(tmp)\n+os.replace(tmp, path)"
        ),
        record.place,
        ambiguity=Ambiguity(
            causes, "ls -l --time-style=full-iso FILE; head -c 200 FILE   # whole by now: it was being written"
        ),
    )
