"""torchft's replica groups do not meet: the lighthouse is not reached, or waits for more groups.

## What happens

With torchft each replica group has a manager, and all managers ask one server, the lighthouse, who takes part in the
next step. `Manager(...)` connects to the address in TORCHFT_LIGHTHOUSE. Where nobody listens there: "RuntimeError:
transport error", or, in newer versions, "failed to connect to http://...: ... Connection refused".

The lighthouse answers once `--min_replicas` groups have asked, and at least half of those that still send a heartbeat.
Until then it prints "New quorum not ready, only have 1 participants, need min_replicas 2", and the managers give up
after `quorum_timeout`: a TimeoutError in `_quorum`, or "status: DeadlineExceeded" in early versions. As long as the
groups start, the line alone is no failure.

## How to be sure

`curl $TORCHFT_LIGHTHOUSE/status` from the host of the manager prints the lighthouse's page, with the groups that it
knows.

## How to mend it

Start the lighthouse before the groups, on a host that all of them reach, and give each group its address, with
`http://` and the port. Start as many groups as `--min_replicas` says, or lower it; a group that was killed holds the
others up until its heartbeat is missed. `TORCHFT_QUORUM_TIMEOUT_SEC` and `TORCHFT_CONNECT_TIMEOUT_SEC` wait longer.

## Versions and sources

Source: torchft 0.1, src/lighthouse.rs, src/net.rs and torchft/manager.py; meta-pytorch/torchft#337. Not run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP389", Severity.ERROR)
TORCHFT = re.compile(r"\btorchft\b|ManagerServer\(|LighthouseClient\(")
OF_THE_MANAGER = re.compile(r"\bManagerClient\(")
REFUSED = re.compile(r"Connection refused|dns error|failed to lookup|timed out|deadline", re.IGNORECASE)
NOT_READY = (
    r"(?:New quorum not ready|No quorum), only have (?P<have>\d+) participants, "
    r"need (?:(?:min_replicas )?(?P<least>\d+)|at least half of (?P<healthy>\d+) healthy workers)"
)
QUORUM = r"(?:Fast q|Valid q|Q)uorum(?: found)?!"
START = "torchft_lighthouse --min_replicas 1 --quorum_tick_ms 100 --join_timeout_ms 10000   # on one host"


@log_pattern(
    r"RuntimeError: (?P<bare>transport error[^\n]{0,300})"
    r"|RuntimeError: failed to connect to (?P<address>https?://\S+?) within [^\n]{1,400}",
    context=(r"TORCHFT_LIGHTHOUSE\W{1,4}(?P<set>https?://[\w.:-]+)",),
)
def at_the_start(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Tell whose server a manager did not reach: the lighthouse, or the manager of its own group."""
    if not TORCHFT.search(record.text):
        return
    told = log.first(r"TORCHFT_LIGHTHOUSE\W{1,4}(?P<set>https?://[\w.:-]+)")
    address = match["address"] or (told[1]["set"] if told else "")
    if OF_THE_MANAGER.search(record.text):
        whose, first = "the manager of its replica group", "rank 0 of the group, which runs it, failed before"
    else:
        whose, first = "torchft's lighthouse", "the lighthouse was not started, or has ended"
    why = REFUSED.search(match[0])
    yield Finding(
        f"a rank does not reach {whose}" + (f" at {address}" if address else ""),
        (record.proof(match, "a server that listens at the address, before the rank asks"),),
        Fix(
            "start the lighthouse first, and give each replica group its address",
            command=f"{START}\nexport TORCHFT_LIGHTHOUSE={address or 'http://HOST:29510'}   # for each group\n"
            "curl -sS $TORCHFT_LIGHTHOUSE/status | head -n 3",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                first,
                "the address, its port or http:// is wrong, or the host has no such name",
                *(() if why and why[0] == "Connection refused" else ("a firewall is between the hosts",)),
            ),
            "echo $TORCHFT_LIGHTHOUSE; curl -sS $TORCHFT_LIGHTHOUSE/status | head -n 3   # on the host of the rank",
        ),
    )


@log_pattern(
    r"TimeoutError: [^\n]{0,200}?(?:[Tt]imeout expired|[Dd]eadline expired|[Dd]eadline has elapsed)"
    r"|RuntimeError: status: DeadlineExceeded, message: [^\n]{0,200}",
    context=(NOT_READY, QUORUM),
)
def without_a_quorum(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The manager's question was not answered in time; the lighthouse's own line says whom it waits for."""
    if not re.search(r"torchft[/\\]|_quorum\(|wait_quorum", record.text):
        return
    waits = None if log.first(QUORUM) else log.first(NOT_READY)
    known = waits is not None and waits[1]["least"] is not None
    if waits and known:
        said = f"the lighthouse waits for {waits[1]['least']} replica groups, and {waits[1]['have']} asked"
    else:
        said = "the lighthouse did not bring the replica groups together in time"
    yield Finding(
        f"torchft has no quorum: {said}",
        (
            record.proof(match, "an answer within quorum_timeout"),
            *((waits[0].proof(waits[1], "as many participants as are needed"),) if waits else ()),
        ),
        Fix(
            "start the other replica groups, with the same lighthouse; or let it begin with fewer",
            command="REPLICA_GROUP_ID=1 TORCHFT_LIGHTHOUSE=http://HOST:29510 torchrun ...   # each group\n" + START,
        ),
        record.place,
        ambiguity=None
        if known
        else Ambiguity(
            (
                "replica groups were not started, or failed before they asked",
                "a group that ended still counts as healthy, and half of all have to ask",
                "a group takes longer than quorum_timeout for its step, or to load its model",
            ),
            "curl -sS $TORCHFT_LIGHTHOUSE/status   # the groups, and when each was heard of last",
        ),
    )
