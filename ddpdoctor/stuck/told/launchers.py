"""Launchers that have no rank and wait for other hosts: as one writes them down, reads them again, and compares them.

What hosts say of the place where they meet is compared by the checks of logs: each host's line says the same there.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ddpdoctor.engine import result
from ddpdoctor.facets import BadTarget
from ddpdoctor.findings import Report, Result, Status
from ddpdoctor.stuck.told.verdict import Verdict, of_launcher
from ddpdoctor.watch.events import LauncherWaits

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.findings import Finding
    from ddpdoctor.stuck.told.sighting import Sighting

KIND = "ddpdoctor-stuck/launcher-1"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A launcher that waits, and the host that it was seen on; ``at`` is when, in seconds since the epoch."""

    host: str
    event: LauncherWaits
    at: float


def as_data(event: LauncherWaits) -> dict[str, Any]:
    """Return a launcher of this host as JSON can hold it."""
    return {"kind": KIND, "host": socket.gethostname(), "at": time.time(), "launcher": asdict(event)}


def read_waiting(name: str, data: object) -> Waiting | None:
    """Read a launcher out of a report; None where the report is of something else.

    Raises:
        BadTarget: the report says that it has one, and it has none that can be read.
    """
    facts = data.get("facts") if isinstance(data, Mapping) else None
    found = facts.get("stuck") if isinstance(facts, Mapping) else None
    if not isinstance(found, Mapping) or found.get("kind") != KIND:
        return None
    try:
        each = found["launcher"]
        event = LauncherWaits(
            pid=int(each["pid"]), time=float(each["time"]), nodes=int(each["nodes"]), seconds=float(each["seconds"]),
            node=None if each["node"] is None else int(each["node"]), host=str(each["host"]), port=int(each["port"]),
            addresses=tuple(map(str, each["addresses"])), answer=str(each["answer"]), holder=str(each["holder"]),
            line=str(each["line"]), launcher=str(each["launcher"]), again=bool(each["again"]),
        )  # fmt: skip
        return Waiting(str(found["host"]), event, float(found["at"]))
    except (KeyError, TypeError, ValueError) as exc:
        raise BadTarget(f"{name}: this report of ddpdoctor stuck is damaged ({type(exc).__name__})") from None


def joined(waiting: Sequence[Waiting], compared: Sequence[tuple[Check, Finding]], checks: Iterable[Check]) -> Verdict:
    """Say what keeps the launchers of several hosts; ``compared`` is what their lines together have shown."""
    checks = tuple(checks)
    results = _compared(compared) or _each(waiting, checks)
    again = all(each.event.again for each in waiting)
    hosts = ", ".join(each.host for each in waiting)
    name = _names(waiting)
    begun = f"goes on nowhere: {name} has no rank" if again else f"has not begun: {name} has started no rank"
    return Verdict(f"This training {begun} on {hosts}.", Report(results, (), 0.0))


def beside(sighting: Sighting, waiting: Sequence[Waiting], checks: Iterable[Check], report: Report) -> Verdict:
    """Say what the hosts without ranks wait for while others have ranks; ``report`` is what was found of these."""
    hosts = ", ".join(each.host for each in waiting)
    full = len(sighting.ranks) >= sighting.world_size
    said = (
        f"All {sighting.world_size} ranks of the training run on {', '.join(sighting.hosts)}, without {hosts}: the "
        "rendezvous has all nodes that it takes, or the launchers meet at different places."
        if full
        else f"Ranks run on {', '.join(sighting.hosts)}; {_names(waiting)} has started none on {hosts}."
    )
    return Verdict(said, replace(report, results=(*report.results, *_each(waiting, tuple(checks)))))


def _names(waiting: Sequence[Waiting]) -> str:
    return " or ".join(dict.fromkeys(each.event.launcher for each in waiting))


def _compared(compared: Sequence[tuple[Check, Finding]]) -> tuple[Result, ...]:
    return tuple(result(check, Status.FAILED, findings=(finding,)) for check, finding in compared)


def _each(waiting: Sequence[Waiting], checks: tuple[Check, ...]) -> tuple[Result, ...]:
    """Return what each host by itself has seen, with its name."""
    found: dict[str, Result] = {}
    for each in waiting:
        for one in of_launcher(each.event, checks, 0.0).report.results:
            own = tuple(replace(finding, place=replace(finding.place, host=each.host)) for finding in one.findings)
            before = found[one.code].findings if one.code in found else ()
            found[one.code] = replace(one, findings=(*before, *own))
    return tuple(found.values())
