"""A script waits in a store for a key that no rank has set.

## What happens

Ranks hand small things to each other through a TCPStore, FileStore or HashStore: `store.set(key, value)` on one rank,
`store.get(key)` or `store.wait([key])` on the others. `get` waits for a key that is not there until the store's time
is up (300 s), and then raises "wait timeout after 300000ms, keys: /key". Names that differ in a letter, a prefix or a
number (a PrefixStore on one side only, an epoch in the name), a `set` under a condition that does not hold, and a rank
that ended before its `set` all come out so.

## How to be sure

The line that failed is the script's own, and asks a store; the message has the key as the store knows it, with each
PrefixStore's prefix before it.

## How to mend it

Set the key, under that very name and through a store with the same prefixes, on a rank that comes to it before others
ask. `store.check([key])` returns at once whether a key is there.

## Versions and sources

Holds for torch 2.2 and later; the message of a TCPStore names the key from 2.3 on, seen with torch 2.13 CPU. Source:
PyTorch documentation, "torch.distributed.Store.get": if key is not present, the function waits for timeout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP375", Severity.ERROR)
ASKS = re.compile(r"\b(?P<store>[\w.]+)\.(?:get|wait|multi_get)\(\s*\[?(?P<key>[^\])]+)[\])]")


@log_pattern(
    r"(?:DistStoreError|RuntimeError): (?:wait timeout after (?P<ms>\d+)ms, keys: (?P<keys>/[^\s,]+(?:, /[^\s,]+)*)"
    r"|Timeout waiting for key: (?P<key>\S+) after \d+ ms)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Ask whether the innermost line is the script's own, and asks a store; torch's own keys are asked by torch."""
    frame = record.users
    asked = ASKS.search(record.code)
    if frame is None or record.frames[-1] != frame or asked is None:
        return
    keys = match["keys"] or match["key"]
    sets = f"{asked['store']}.set({asked['key'].partition(',')[0]}, value)"
    yield Finding(
        f"no rank has set {keys} in the store that this rank asks: it has waited until the store's timeout",
        (record.proof(match, f"{sets} on one rank"),),
        Fix(
            "set the key under this very name, through a store with the same prefixes, before others ask for it",
            diff=f"+{sets}   # on the rank that knows it\n {record.code}",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "another name is set: a letter, a space, a prefix or a number differs",
                "the line that sets it stands under a condition that does not hold",
                "the rank that sets it has ended, or stands before that line",
            ),
            rf"grep -nE '\.(set|add)\(' {frame.file}",
        ),
    )
