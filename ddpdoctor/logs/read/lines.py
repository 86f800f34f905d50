"""One line of a log: what a launcher put before it, what a terminal would make of it, and what the program said."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddpdoctor.logs.read.clock import Moment, find_moment

LONGEST = 20_000  # characters of a line that are read: a tensor that was printed proves nothing
DEEPEST = 8  # prefixes of one line: a launcher within a launcher within a container
SEQUENCE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])"
ESCAPES = re.compile(rf"{SEQUENCE}|#033\[[\d;]*m|[\x00-\x08\x0b-\x1f\x7f]")
ESCAPES_IN_BYTES = re.compile(rf"{SEQUENCE}|[\x00-\x06\x0b\x0c\x0e-\x1f\x7f]".encode())
UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}|\][^\x07\x1b]{0,256})?\Z")
# Some write a blank behind their prefix, some do not; Python indents by an even number of them.
BLANK = r"(?:[ ](?=(?:[ ]{2}){0,40}(?![ ])))?"
PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[rank(?P<rank>\d+)\]:" + BLANK,  # torch's excepthook and C++ log; torchrun --tee of the role "rank"
        r"\[rank: (?P<rank>\d+)\][ ]",  # Lightning
        r"\[(?:default|[A-Za-z_]\w*?)(?P<rank>\d+)\]:" + BLANK,  # torchrun --tee: role and local rank
        r"\[(?P<rank>\d+)\]:[ ]?",  # torchrun with a template of the user's
        # mpirun --tag-output, of Open MPI 5 and of SageMaker
        r"\[(?:[\w.-]+@)?\d+,(?:mpirank:)?(?P<rank>\d+)(?:,[A-Za-z][\w.-]*)?\](?:<std(?:out|err|diag)>)?:?" + BLANK,
        # MPICH's and Intel's mpirun -prepend-rank
        r"\[(?P<rank>\d{1,5})\][ ](?=\[\d{4}-|\d+: \[|Traceback \(|[ ]{2}File [^ ]|[ ]{4}\S|[\w.]{0,80}Error\b)",
        r"\[(?P<rank>\d+)\]<std(?:out|err)>:" + BLANK,  # horovodrun
        r"[ ]{0,4}(?P<rank>\d{1,5}):[ ](?=\S|[ ]{2}|\t)",  # srun --label
        r"\((?:[A-Za-z_][\w.:]*(?:\(rank=(?P<rank>\d+)\))?[ ])?pid=\d+(?:, ip=(?P<node>[\w.:-]+))?\)[ ]?",  # Ray
        r"\((?P<node>head|worker\d+), rank=\d+, pid=\d+\)[ ]?",  # SkyPilot, whose rank is that of the node
        r"(?P<node>[a-z][\w.-]*[-_]\d+)[ ]*\|[ ](?=\S|[ ]{2})",  # docker compose
        r"(?P<node>(?!rank|epoch|step|iter)[a-z][\w.-]*\d[\w.-]*):[ ](?=\[|Traceback|[ ]{2}|[\w.]*Error)",  # pdsh
        r"(?P<node>\d{1,3}(?:\.\d{1,3}){3}):[ ](?=\S|[ ]{2})",  # pdsh of addresses
        r"std(?:out|err) [FP](?:[ ]|$)",  # /var/log/containers
        r"\[pod/(?P<node>[\w.-]+)/[\w.-]+\][ ]?",  # kubectl logs --prefix
        r"\[\s*\d+\.\d{6}\][ ]",  # dmesg: seconds since the host started
    )
)
# syslog's and journalctl's, behind their time; a level is no host.
SYSLOG = re.compile(
    r"(?P<node>(?!(?:INFO|WARN|WARNING|ERROR|DEBUG|CRITICAL)\b)[A-Za-z][\w.-]*)[ ]"
    r"[\w.@/-]{1,60}\[\d+\]:[ ](?=\S|[ ]{2}|\t)"
)
WITHIN = (
    re.compile(r"\[(?:PG (?:ID )?[^\]]{0,120}?)?[Rr]ank[ :]{1,2}(?P<rank>\d+)\]"),  # ProcessGroupNCCL, DeepSpeed
    re.compile(r"\brank=(?P<rank>\d+), size=\d+"),  # gloo
    re.compile(r"^(?P<node>[A-Za-z][\w.-]*):\d+:\d+ \[(?:\d+|-1)\] (?:\S+ )?NCCL "),
)
BOLD = 8  # characters of a bold line: more than its asterisks
HEAD = 240  # characters in which rank, node and time stand


@dataclass(frozen=True, slots=True)
class Line:
    """A line without colours and prefixes; ``stream`` tells the outputs of several processes apart."""

    text: str
    number: int
    rank: int | None = None
    node: str | None = None
    moment: Moment | None = None
    stream: str = ""
    is_logged: bool = False
    """A logger gave its level, as it does to a traceback that was handled."""


def decoded(raw: bytes) -> str:
    """Return a line as text, without escape sequences."""
    if b"\x00" in raw:  # what PowerShell redirects is UTF-16
        raw = raw.replace(b"\x00", b"")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return ESCAPES.sub("", text[:LONGEST]).rstrip()


def parsed(text: str, number: int) -> Line:
    """Return what a program said in a line of text."""
    rank: int | None = None
    node: str | None = None
    moment: Moment | None = None
    stream = ""
    for _ in range(DEEPEST):
        if found := find_moment(text):
            said, end = found
            moment = moment if moment is not None and moment.zoned and not said.zoned else said
            if end:
                text = text[end:]
                continue
        for prefix in (*PREFIXES, SYSLOG) if moment is not None else PREFIXES:
            if match := prefix.match(text):
                break
        else:
            break
        named = match.groupdict()
        rank = int(named["rank"]) if named.get("rank") else rank
        node = named.get("node") or node
        stream += match[0].rstrip()
        text = text[match.end() :]
    for within in WITHIN:
        if match := within.search(text[:HEAD]):
            named = match.groupdict()
            rank = int(named["rank"]) if named.get("rank") and rank is None else rank
            node = named.get("node") or node
    return Line(_without_emphasis(text), number, rank, node, moment, stream)


def _without_emphasis(text: str) -> str:
    """Take off the asterisks that make a line of a report bold."""
    bold = text.startswith("**") and text.endswith("**") and len(text) > BOLD and text[2].isalnum()
    return text[2:-2] if bold else text
