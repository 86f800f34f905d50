"""Where logs come from: files, compressed or not, and folders of them; each with what its path tells of its origin."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ddpdoctor.facets import BadTarget
from ddpdoctor.logs.read.elastic import error_file
from ddpdoctor.suggest import why_no_file

BLOCK = 1 << 20
LOGS = re.compile(
    r"\.(?:log|out|err|txt|jsonl?|stdout|stderr|o\d+|e\d+)(?:\.\d+)?(?:\.gz)?$|(?:^|[-_.])(?:log|trace_rank)[_.]?\d*$"
)
# torchrun --log-dir: RUN/attempt_0/LOCAL_RANK/stderr.log; Slurm's %t, and what people name a file of a rank.
RANK = re.compile(
    r"(?:^|/)attempt_\d+/(\d+)/|(?:^|[^A-Za-z])(?:rank|task|worker|proc)[-_.]?(\d+)"
    r"|(?<!slurm)-\d{3,}[-_.](\d+)\.(?:out|err)$|-\d{3,}[-.](\d+)\.(?:out|err)$",  # Slurm's own N_M is an array's
    re.IGNORECASE,
)
NODE = re.compile(r"(?:^|[/_.-])((?:node|host)[-_]?\d+)(?=[/_.-])", re.IGNORECASE)
GZIP = b"\x1f\x8b"
PICKLE = b"\x80"
KEYS = (b'"entries"', b'"pg_config"', b"\x00entries", b"\x00version", b"\x00pg_config")
DUMP = re.compile(r"\d$")  # torch adds the rank to whatever name it was given
CONTROL = bytes({*range(32)} - {7, 8, 9, 10, 13, 27})


@dataclass(frozen=True, slots=True)
class Origin:
    """The name of a source as reports give it, and the rank and node whose output it is, where its path tells."""

    name: str
    rank: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A log to read: where it comes from, and what opens it."""

    origin: Origin
    open: Callable[[], BinaryIO]


def sources(path: str) -> list[Source]:
    """Return the logs that a path names: itself, or those in a folder.

    Raises:
        BadTarget: nothing is there, or no log in the folder.
    """
    if not Path(path).is_dir():
        if not Path(path).exists():
            raise BadTarget(why_no_file(path))
        return [_source(path)]
    inside = (each.relative_to(path) for each in sorted(Path(path).rglob("*")) if each.is_file())
    found = [
        str(Path(path, each))
        for each in inside
        if not any(part.startswith(".") for part in each.parts)
        and (LOGS.search(each.name) or (DUMP.search(each.name) and _is_dump_at(Path(path, each))))
    ]
    if not found:
        raise BadTarget(f"{path}: no log in this folder (*.log, *.out, *.err, *.txt, error.json, *.gz), and no dump")
    return [_source(each) for each in found]


def _source(path: str) -> Source:
    tail = "/".join(Path(path).parts[-4:])
    rank = next((group for match in [RANK.search(tail)] if match for group in match.groups() if group), None)
    node = NODE.search(tail)
    return Source(Origin(path, int(rank) if rank else None, node[1] if node else None), lambda: opened(path))


def blocks(source: Source) -> Iterator[bytes]:
    """Yield a log's bytes, in blocks, decompressed and as UTF-8 or what comes close to it.

    Raises:
        BadTarget: it cannot be opened, it is no text, or it ends in the middle; what was read before was given.
    """
    try:
        with source.open() as file:
            yield from _text(file, source.origin.name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise BadTarget(f"{source.origin.name}: damaged or cut short: {exc}") from exc
    except OSError as exc:
        raise BadTarget(f"{source.origin.name}: {exc.strerror or exc}") from exc


def _text(file: BinaryIO, name: str) -> Iterator[bytes]:
    head = file.read(BLOCK)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what PowerShell redirects
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
        while head:
            yield decoder.decode(head).encode()
            head = file.read(BLOCK)
        return
    if head.startswith(b'{"message"') and (text := error_file(head)):
        yield text
        return
    if is_binary(head):
        raise BadTarget(f"{name}: no text")
    while head:
        yield head
        head = file.read(BLOCK)


def is_binary(head: bytes) -> bool:
    """Whether these are no lines that a program printed: of a hundred bytes three are control characters."""
    head = head[:8192]
    return len(head.translate(None, CONTROL)) < len(head) * 0.97


def is_dump(head: bytes) -> bool:
    """Whether a file that begins so can be a dump of a flight recorder."""
    return head[:1] in {PICKLE, b"{"} and any(key in head for key in KEYS)


def _is_dump_at(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return is_dump(file.read(BLOCK))
    except OSError:
        return False


def opened(path: str) -> BinaryIO:
    """Open a file; where it is compressed, what is in it."""
    file = Path(path).open("rb")  # noqa: SIM115 - the caller closes it
    return cast("BinaryIO", gzip.GzipFile(fileobj=file)) if file.peek(2)[:2] == GZIP else file
