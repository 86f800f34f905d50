"""What is said of a rank that is gone or stuck, where no more is known than that."""

from __future__ import annotations

from ddpdoctor.check import Ambiguity, Doing, Evidence, Finding, Fix, PeerLost, Place, Progress, Severity, place

from ..hangs._lost import KERNEL, REVIVE
from ..hangs._told import short
from ..timeouts._watchdog import named


def gone_or_stuck(ranks: list[int], waits: str, evidence: tuple[Evidence, ...], more: str = "") -> Finding:
    """Return the name of the ranks as far as they are known.

    ``more`` can be the reason as well: the ranks are there then, and it is told what is waited for.
    """
    who = named(ranks[:8]) if ranks else "a rank"
    plural = "are" if len(ranks) > 1 else "is"
    return Finding(
        f"{waits} of {who}" if more else f"{who} {plural} gone or stuck: {waits}",
        evidence,
        Fix(
            f"read the log of {who}, and the kernel's on its host",
            command=f"{KERNEL}; py-spy dump --pid PID",
        ),
        Place(rank=ranks[0]) if len(ranks) == 1 else Place(),
        ambiguity=Ambiguity(
            (
                "it was killed or crashed (memory, signal, GPU)",
                "it hangs or works elsewhere (data loading, I/O, a branch)",
                *((more,) if more else ()),
            ),
            "py-spy dump --pid PID   # of that rank: a process that is gone answers nothing",
        ),
    )


def lost_by(event: PeerLost) -> Finding:
    """Return which ranks are gone without a word, and whose connection broke."""
    lost = event.others[0]
    who, one = named(list(event.gone)[:8]), len(event.gone) == 1
    return Finding(
        f"{who} {'is' if one else 'are'} gone without an exception{'' if one else ', one of them first'}; "
        f"rank {lost.rank} lost its connection",
        tuple(Evidence(each.said, "", f"rank {each.rank}") for each in event.others),
        Fix(f"find out what ended {who}: the kernel's log and the rank's own", command=REVIVE[Doing.DIED]),
        place(lost.site, rank=lost.rank),
        ambiguity=Ambiguity(
            (
                "the kernel killed it, for want of memory",
                *((BY_GLOO,) if any("gloo" in each.said for each in event.others) else ()),
                "it crashed in native code (signal 11 or 6)",
                "somebody sent it a signal (kill, a scheduler)",
                "a library called os._exit",
            ),
            REVIVE[Doing.DIED] + "   # and the exit code in the launcher's summary: -9, -11, -6",
        ),
    )


BY_GLOO = (
    "gloo ended it (signal 6), as another rank's collective was of another size: its output then has "
    '"op.preamble.length <= op.nbytes", of a collective that one rank makes and another does not (a hook, a branch)'
)


def last_call(each: Progress) -> Finding:
    """Return the last communication of a rank that is gone, with the exit codes that decide."""
    last = each.recent[-1]
    return Finding(
        f"rank {each.rank} is gone without an exception; {last.operation} at {short(last.site)} was the last "
        "communication that it began",
        (Evidence(f"{last.operation} at {short(last.site)}", "", f"rank {each.rank}"),),
        Fix("read what the rank printed last, and its exit code", command=REVIVE[Doing.DIED]),
        place(last.site, rank=each.rank),
        severity=Severity.NOTE,
        ambiguity=Ambiguity(
            (
                "exit code -6: gloo ended it, since a rank of another host is in another collective",
                "exit code -15: torchrun ended it, since a rank of another host has failed",
                "exit code -9: the kernel killed it for want of memory, or somebody did",
                "exit code -11: it crashed in native code",
            ),
            "ddpdoctor explain LOGS_OF_ALL_HOSTS",
        ),
    )
