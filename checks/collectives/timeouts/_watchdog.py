"""What the watchdogs of ProcessGroupNCCL say when a collective times out, and what the ranks' lines show together.

Several checks share the message; each log tells one story, of which exactly one of them speaks.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.check import Claim, Log, Marker, Record, Role, log_pattern

from ..._findings.few import few
from ._experts import MOE, ZERO3
from ._waits import STUCK, Wait, group_size, one_group, place_of, waits as read_waits

if TYPE_CHECKING:
    from ddpdoctor.check import Evidence

STATUS = (
    r"PG (?:ID )?(?P<group>\d+)\b[^\]\n]*Rank (?P<rank>\d+)\][^\n]*"
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last completed"
)
PREPARING = r"(?:\[|\[\d+:)(?P<minutes>0[1-9]|[1-5]\d):(?P<seconds>\d\d)[,<][^\]\n]* examples/s\]"
PREPARED = r"100%\|[^\n]* examples/s\]"
PEER_TO_PEER = r"\bvia P2P/"
SAVING = r"#\d+ (\w*save_\w*checkpoint\w*) from |\bin (\w*save_\w*checkpoint\w*)\n"
IOMMU = r"NCCL WARN Missing \"(?:amd_)?iommu=\w{1,8}\" from kernel command line"
BESIDE = (STUCK, STATUS, PREPARING, PREPARED, PEER_TO_PEER, SAVING, MOE, ZERO3, IOMMU)
EARLY = 10  # collectives: a group's first ones carry no training yet
ALIKE = {"ALLREDUCE", "BROADCAST", "ALLGATHER", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "REDUCE", "BARRIER"}


class Timeout(enum.Enum):
    """What the lines of all ranks show: of each exactly one check speaks."""

    SLOW = "a rank prepares data"
    RANK_ZERO = "rank 0 alone is in another collective of the same number"
    DIFFERENT = "the ranks are in different collectives of the same number"
    BEHIND = "the ranks are in collectives of different numbers"
    SAVING = "the collective is part of saving a checkpoint"
    TRANSPORT = "the first transfer between GPUs of a host does not end"
    ABSENT = "few ranks are missing"
    UNKNOWN = "nothing more"


@dataclass(frozen=True, slots=True)
class Story:
    """What happened, which ranks it is about, and what shows it."""

    timeout: Timeout
    waits: tuple[Wait, ...]
    ranks: tuple[int, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    @property
    def waiting(self) -> str:
        """Who waits where."""
        ranks = sorted(wait.rank for wait in self.waits if wait.rank is not None)
        return f"{named(ranks) if ranks else 'a rank'} wait{'' if len(ranks) > 1 else 's'} in {self.waits[0]}"

    @property
    def is_rank_zero_alone(self) -> bool:
        """Whether rank 0 is in one operation and all the others, two or more, in another."""
        zero = {wait.op for wait in self.waits if wait.rank == 0}
        others = [wait.op for wait in self.waits if wait.rank != 0]
        return bool(zero) and len(others) > 1 and len(set(others)) == 1 and not zero & set(others)


def named(ranks: list[int]) -> str:
    """Write ranks as people do."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


GROUP = re.compile(r"PG GUID \d+\((?P<name>(?!default_pg\b|0\b)\w+)\) Rank (?P<rank>\d+)\]")


def of_group(story: Story, log: Log) -> str:
    """Return in which group the first of them waits, in words; nothing where that is the group of all ranks."""
    texts = (record.text for record, _ in log.find(STATUS) if record.rank == story.waits[0].rank)
    group = next(filter(None, map(GROUP.search, texts)), None)
    return f" of the group {group['name']}, in which it has number {group['rank']}" if group else ""


def on_timeout(timeout: Timeout, *, role: Role = Role.CAUSE) -> Marker:
    """Mark what is shown the first time-out of a log, where the log's story is this one."""
    return log_pattern(STUCK, role=role, context=BESIDE, claim=Claim(timeout_of, (timeout,)), waits=True)


def timeout_of(record: Record, log: Log) -> Timeout | None:
    """Return what the log shows; None for a time-out that is not its first, since a story is told once."""
    first = log.first(STUCK)
    return story_of(log).timeout if first and first[0] is record else None


def story_of(log: Log) -> Story:
    """Return what the log tells of its time-outs."""
    waits = read_waits(log)
    return next(filter(None, (tell(log, waits) for tell in TELLERS)), Story(Timeout.UNKNOWN, waits))


def _slow(log: Log, waits: tuple[Wait, ...]) -> Story | None:
    """See a bar of data preparation that did not end: in the very line, near the limit, or none at 100 %."""
    if (waits[0].seq or 0) > EARLY:
        return None
    limit = waits[0].limit / 1000
    done = log.first(PREPARED)
    for record, bar in log.find(PREPARING):
        if re.search(PREPARED, record.text):
            continue
        hours = re.search(r"\[(\d+):\d\d:\d\d[,<]", bar[0])
        elapsed = (int(hours[1]) * 3600 if hours else 0) + int(bar["minutes"]) * 60 + int(bar["seconds"])
        percent = re.search(r"\d+%\|", record.text)
        if record is waits[0].record or elapsed >= 0.8 * limit > 0 or (percent and not done):
            proof = record.proof(bar, "data prepared before the group's first step")
            return Story(Timeout.SLOW, waits, evidence=(proof,))
    return None


def _proofs(waits: Iterable[Wait]) -> tuple[Evidence, ...]:
    return tuple(wait.proof for wait in few(waits, place_of))


def _different(log: Log, waits: tuple[Wait, ...]) -> Story | None:
    """Compare ranks in collectives of one number; only where ranks of one group are told apart for sure."""
    for seq in {wait.seq for wait in waits if wait.seq is not None}:
        same = [wait for wait in waits if wait.seq == seq and wait.op in ALIKE and wait.rank is not None]
        what = {(wait.op, wait.given) for wait in same}
        if len(what) > 1 and one_group(log, same):
            story = Story(Timeout.DIFFERENT, tuple(same), evidence=_proofs(same))
            return replace(story, timeout=Timeout.RANK_ZERO) if story.is_rank_zero_alone else story
    return None


def _behind(log: Log, waits: tuple[Wait, ...]) -> Story | None:
    """Compare the numbers; or find a rank that has not even begun the collective that the others wait in."""
    numbered = [wait for wait in waits if wait.seq is not None and wait.rank is not None]
    numbers = {wait.seq for wait in numbered}
    if len(numbers) > 1 and one_group(log, numbered):
        late = min(number for number in numbers if number is not None)
        ranks = tuple(wait.rank for wait in numbered if wait.seq == late and wait.rank is not None)
        return Story(Timeout.BEHIND, tuple(numbered), ranks, _proofs(numbered))
    lagging = {
        int(found["rank"]): record.proof(found, f"collective {waits[0].seq} begun")
        for record, found in log.find(STATUS)
        if found["group"] == "0" and len(numbers) == 1 and int(found["enqueued"]) < (waits[0].seq or 0)
    }
    lagging = {rank: proof for rank, proof in lagging.items() if rank not in {wait.rank for wait in waits}}
    if not lagging:
        return None
    return Story(Timeout.BEHIND, waits, tuple(sorted(lagging)), (waits[0].proof, *list(lagging.values())[:3]))


def _saving(log: Log, waits: tuple[Wait, ...]) -> Story | None:
    found = log.first(SAVING)
    return Story(Timeout.SAVING, waits, evidence=(waits[0].proof, found[0].proof(found[1]))) if found else None


def _transport(log: Log, waits: tuple[Wait, ...]) -> Story | None:
    """See the group's first collective stuck for all, though NCCL has set up its peer-to-peer channels."""
    channel = log.first(PEER_TO_PEER)
    numbers = {wait.seq for wait in waits}
    if channel is None or len(waits) < 2 or not numbers <= {1, 2}:  # noqa: PLR2004 - a pair, and the first two
        return None
    return Story(Timeout.TRANSPORT, waits, evidence=(waits[0].proof, channel[0].proof(channel[1], "the transfer ends")))


def _absent(_: Log, waits: tuple[Wait, ...]) -> Story | None:
    """Count the ranks of the group by what a gathering collective gives and makes, and name the few that are silent."""
    sizes = [size for wait in waits if (size := group_size(wait))]
    here = {wait.rank for wait in waits if wait.rank is not None}
    if not sizes or len(set(sizes)) > 1 or max(here, default=0) >= sizes[0]:
        return None
    missing = tuple(sorted(set(range(sizes[0])) - here))
    if not missing or len(missing) >= len(here):
        return None
    return Story(Timeout.ABSENT, waits, missing, tuple(wait.proof for wait in waits[:2]))


TELLERS: tuple[Callable[[Log, tuple[Wait, ...]], Story | None], ...] = (
    _slow,
    _different,
    _behind,
    _saving,
    _transport,
    _absent,
)
