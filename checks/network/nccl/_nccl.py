"""What NCCL says of itself in a log, and the finding for an error of which it says no more than the class."""

from __future__ import annotations

import re

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, Log, Record

# A host without InfiniBand, and one whose NVLink domain is not set up, warn and go on.
WARN = r"NCCL WARN (?!Failed to open lib|MNNVL |Could not find real path|NET/Plugin|dlvsym failed)\S"
COMPLETE = r"NCCL INFO [^\n]{0,200}Init COMPLETE"
LAST_ERROR = re.compile(r"Last error:[ \t]*\n?[ \t]*(\S[^\n]*)")
FIRST = "grep -m1 -A1 -E 'NCCL WARN|Last error' LOGS_OF_ALL_RANKS"
ASK = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET torchrun ... 2>&1 | grep -m1 'NCCL WARN'"

NAMED = (
    "what NCCL's line names went wrong on this host: its words, and the number of the error, are what to look up",
    "another rank failed before: its own first NCCL WARN line says why",
)


def says_more(record: Record, log: Log) -> Evidence | None:
    """Quote the first NCCL WARN of the log, or else what the record gives as NCCL's last error."""
    if warned := log.first(WARN):
        return warned[0].proof(warned[1])
    last = LAST_ERROR.search(record.text)
    return Evidence(last[1], "", f"{record.source}, NCCL's last error") if last else None


def unspecified(what: str, causes: tuple[str, ...], record: Record, match: re.Match[str], log: Log) -> Finding:
    """Report an error of NCCL's that names its class only; ``causes`` are those of its class, or of what it says."""
    more = says_more(record, log)
    return Finding(
        f"{what}: {more.seen}" if more else f"{what}, and no NCCL WARN line of the log says why",
        (
            record.proof(match, "no error" if more else "an NCCL WARN line before it, which names the call"),
            *((more,) if more else ()),
        ),
        Fix("look up what NCCL names; the first such line of all ranks says what came first", command=FIRST)
        if more
        else Fix("run once more with NCCL's own log, and read its first WARN line", command="export NCCL_DEBUG=INFO"),
        record.place,
        ambiguity=Ambiguity(causes, FIRST if more else ASK),
    )
