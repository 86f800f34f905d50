"""A rank looks for a file, or a folder, that is not there for it.

## What happens

`FileNotFoundError` ends a rank; the others wait for it in their next collective, and the log is full of their errors.
In a training of several ranks the same path is there for some and not for others, for reasons that one process does
not have: the ranks of another host see another disk, a rank looks before rank 0 has written or made it, or the path is
relative, and the launcher was started from another folder.

## How to be sure

Which ranks failed says most. Ranks of one host alone: that host does not have the file. One rank beside the first, and
another one in the next run: it was too early. All ranks, rank 0 among them: the path is wrong, or not mounted in the
container. `ls -ld PATH` answers on each host, in the container of the ranks.

## How to mend it

- Another host: put the file on storage that all hosts share, or copy it to each (`rsync`). What rank 0 prepares (an
  index, a download, a cache) is made by the first rank of each host: `if int(os.environ["LOCAL_RANK"]) == 0`.
- Too early: a barrier between who makes the file and who reads it; who writes into a folder makes it first, with
  `os.makedirs(folder, exist_ok=True)`.
- Relative: make paths absolute, from the place of the script: `Path(__file__).parent / "data"`.

## Versions and sources

Holds for all versions of Python and torch. Source: Python documentation, "OS exceptions"; open(2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ..._hosts.ranks_of_hosts import LOCAL
from ._own_errors import who

if TYPE_CHECKING:
    from ._own_errors import Who

AILMENT = Ailment("DDP437", Severity.ERROR)
MISSING = (
    r"FileNotFoundError: (?:\[(?:Errno 2|WinError [23])\] [^:\n]{1,120}: '(?P<path>[^'\n]{1,400})'"
    r"|[^\n]{0,40}Unable to (?:synchronously )?open file \(unable to open file: name = '(?P<hdf>[^'\n]{1,400})'"
    r"|\[Errno 2\] Failed to open local file '(?P<arrow>[^'\n]{1,400})'(?!\. Detail: [^\n]*incomplete))"
)
WORDED = (
    r"(?:FileNotFoundError|NotADirectoryError|HFValidationError|ValueError|OSError|RuntimeError|AssertionError"
    r"|\bException):\s{1,3}"
    r"(?P<said>[^\n]{0,300}?(?:does(?: not|n't) exist|do not exist|not found|could(?: not|n't) (?:be found|find)"
    r"|can(?:not|'t) be found"
    r"|can(?:not|'t) find|[Uu]nable to find|Incorrect path_or_model_id|Repo id must be in the form"
    r"|[Cc]an't load \w+ for|is not a (?:file|dir|path|valid (?:file|dir|path))|isn't a (?:file|dir))[^\n]{0,300})"
)
PATH = re.compile(
    r"(?<![\w:/.])(?:/|\.{1,2}/|~/|[A-Za-z]:\\)[\w.+@=~-][^\s'\"`,;()\[\]]*"
    r"|(?<=['\"`])(?!https?:)[\w.-]+/[\w./-]+\.\w{1,9}(?=['\"`])"
)
MISSING_PATH = re.compile(r"(?<=missing path ')[^'\n]{2,300}(?=')")  # Ultralytics, which names its YAML before
OTHERS = re.compile(r"\.so\b|\.dll\b|^/dev/")  # libraries and devices: other checks'
PROGRAM = re.compile(r"in _execute_child\b")
WRITES = re.compile(
    r"torch\.save\(|save_pretrained\(|mkdir\(|\bopen\([^\n]*['\"][wax]b?\+?['\"]|to_csv\(|savefig\(|FileWriter\("
)
RAISES = re.compile(r"\braise FileNotFoundError\b")  # it looked for the file first
WORKER = "_worker_loop"
CACHED = re.compile(r"(?i:cache|/tmp/|\btmp\b)[^\n]*/")
OF_RANK = re.compile(r"(?:rng_state|random_states?|scheduler|sampler|shard|rank|model_states|states?)_\d+\b[^/]*$")
HERE = "the path is wrong, or not mounted in the container of the ranks"
ELSEWHERE = "the file is on the disk of another host: this one does not have it"
EARLY = "another rank makes, replaces or deletes it, and was not done"
RELATIVE = "the path is relative, and the ranks were started in another folder"
LISTED = "the list of samples names files that are not there, or are below another root"


@dataclass(frozen=True, slots=True)
class Absent:
    """What was not there, for whom, and how it was looked for."""

    path: str
    by: Who
    record: Record

    @property
    def folder(self) -> str:
        """The folder that it would lie in."""
        return self.path.rstrip("/").rpartition("/")[0] or "."

    @property
    def causes(self) -> tuple[str, ...]:
        """What can be the reason, likeliest first."""
        relative = (RELATIVE,) if not re.match(r"[/~\\]|\w:[\\/]", self.path) else ()
        if self.by.is_apart or self.by.is_beyond or len(self.by.hosts) > 1:
            return (ELSEWHERE, EARLY, *relative)
        if self.by.is_one_of_several:
            return (EARLY, ELSEWHERE, *relative)
        listed = (LISTED,) if WORKER in self.record.text else ()
        cached = (EARLY,) if len(self.by.ranks) > 1 and CACHED.search(self.path) else ()
        return (*listed, *relative, *cached, HERE, *(() if len(self.by.ranks) > 1 else (ELSEWHERE,)))


@log_pattern(MISSING, context=(LOCAL,), plain=True)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Say for whom it was not there, and what can be the reason."""
    path = match["path"] or match["hdf"] or match["arrow"]
    absent = Absent(path, who(log, MISSING), record)
    if PROGRAM.search(record.text) and "/" not in path:
        yield _program(absent, match)
    elif WRITES.search(below := _below(record)) and not RAISES.search(below):
        yield _written(absent, match)
    elif not OF_RANK.search(path):
        yield _read(absent, match)


@log_pattern(WORDED, context=(LOCAL,), plain=True)
def in_other_words(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read a path that a package says is not there, in words and by an exception of its own."""
    path = MISSING_PATH.search(match["said"]) or PATH.search(match["said"])
    if path is None or OTHERS.search(path[0]):
        return
    absent = Absent(path[0].rstrip(".:"), who(log, WORDED), record)
    if not OF_RANK.search(absent.path):
        yield _read(absent, match)


def _below(record: Record) -> str:
    """Return the text of a traceback from the innermost frame of the user's own code on."""
    code = record.code
    return record.text[record.text.rfind(code) :] if code else record.text


def _program(absent: Absent, match: re.Match[str]) -> Finding:
    return Finding(
        f"{absent.by.words} started the program {absent.path}, which is not on the PATH here",
        (absent.record.proof(match, f"{absent.path} on the PATH of the ranks"),),
        Fix(
            "install it on each host, or in the image, and see that the launcher hands the PATH on",
            command=f"command -v {absent.path} || echo $PATH   # on each host, in the shell that starts the ranks",
        ),
        absent.record.place,
    )


def _written(absent: Absent, match: re.Match[str]) -> Finding:
    early = "rank 0 makes the folder, and has not done so yet"
    local = "rank 0 has made it on another host: the folder is not shared"
    nobody = "nobody makes it"
    by = absent.by
    causes = (early, local, nobody) if by.ranks and 0 not in by.ranks else (nobody, RELATIVE)
    return Finding(
        f"{by.words} {'write' if len(by.ranks) > 1 else 'writes'} {absent.path}, and the folder is not there",
        (absent.record.proof(match, f"a folder {absent.folder}"),),
        Fix(
            "let each rank make the folder before it writes there",
            diff=f"+os.makedirs({absent.folder!r}, exist_ok=True)\n {absent.record.code or 'torch.save(state, path)'}",
        ),
        absent.record.place,
        ambiguity=Ambiguity(causes, f"ls -ld --time-style=full-iso {absent.folder}   # on each host"),
    )


def _read(absent: Absent, match: re.Match[str]) -> Finding:
    by = absent.by
    on = f" on {by.hosts[0]}" if len(by.hosts) == 1 and len(by.all_hosts) > 1 and by.ranks else ""
    others = "; the ranks of other hosts did not say so" if on else ""
    first = absent.causes[0]
    return Finding(
        f"{by.words}{on} found no {absent.path}{others}",
        (absent.record.proof(match, "the file, for every rank"),),
        FIXES[first],
        absent.record.place,
        ambiguity=Ambiguity(absent.causes, f"pwd; ls -ld {absent.folder} {absent.path}   # on each host, as the ranks"),
    )


FIXES = {
    ELSEWHERE: Fix(
        "put it on storage that all hosts share, or let one rank of each host prepare it",
        diff='-if torch.distributed.get_rank() == 0:\n+if int(os.environ["LOCAL_RANK"]) == 0:\n     prepare(path)\n'
        " torch.distributed.barrier()",
    ),
    EARLY: Fix(
        "let the others wait until it is written",
        diff=" if torch.distributed.get_rank() == 0:\n     prepare(path)\n+torch.distributed.barrier()\n data = "
        "load(path)",
    ),
    RELATIVE: Fix(
        "make the path independent of the folder that the ranks are started in",
        diff='-path = "data/train"\n+path = Path(__file__).resolve().parent / "data/train"',
    ),
    HERE: Fix(
        "give the path as the ranks see it",
        command="docker run -v /data:/data ...   # containers see what is mounted",
    ),
    LISTED: Fix(
        "compare the list with what is there, and give the root that it is relative to",
        command='python -c "from train import build_dataset as b; import os; '
        'print([p for p in b().paths if not os.path.exists(p)][:20])"   # the names that your data set has',
    ),
}
