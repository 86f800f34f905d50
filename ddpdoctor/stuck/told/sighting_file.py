"""A sighting as the text of a file, for hosts that are looked at one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ddpdoctor.facets import BadTarget
from ddpdoctor.host.process.connections import Peer
from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.stuck.looks.files import as_there
from ddpdoctor.stuck.looks.gpus import as_use
from ddpdoctor.stuck.told.sighting import Sighted, Sighting
from ddpdoctor.watch.events import Communication, Doing, Position, Site, Worker
from ddpdoctor.watch.events.hang import JOINS, UnderWay

if TYPE_CHECKING:
    from typing import Any

KIND = "ddpdoctor-stuck/1"


def as_data(sighting: Sighting) -> dict[str, Any]:
    """Return a sighting as JSON can hold it."""
    ranks = [{**asdict(each), "doing": each.position.doing.name} for each in sighting.ranks]
    for each in ranks:
        each["position"] = _as_there({name: each["position"][name] for name in WRITTEN})
    return {**asdict(replace(sighting, ranks=())), "kind": KIND, "ranks": ranks}


def _as_there(data: Any) -> Any:
    """Name files as they are named in the container: another host's lines are compared with them."""
    if isinstance(data, Site):
        return data._replace(file=as_there(data.file))
    if isinstance(data, dict):
        return {name: _as_there(each) for name, each in data.items()}
    return [_as_there(each) for each in data] if isinstance(data, (list, tuple)) else data


WRITTEN = (
    "rank",
    "pid",
    "seconds",
    "site",
    "operation",
    "function",
    "stack",
    "counters",
    "workers",
    "threads",
    "awaited",
    "raised",
    "caught",
)


def read_sighting(name: str, data: object) -> Sighting | None:
    """Read a sighting out of a report; None where it is a report of something else.

    Raises:
        BadTarget: the report says that it has one, and it has none that can be read.
    """
    facts = data.get("facts") if isinstance(data, Mapping) else None
    found = facts.get("stuck") if isinstance(facts, Mapping) else None
    if found is None:
        return None
    try:
        if found["kind"] != KIND:
            raise BadTarget(f"{name}: written by another version of ddpdoctor ({found['kind']}, and this reads {KIND})")
        sighting = Sighting(
            tuple(map(_sighted, found["ranks"])), int(found["world_size"]), str(found["address"]), str(found["run"]),
            float(found["at"]), tuple(_peer(each) for each in found.get("peers", ())),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as exc:
        raise BadTarget(f"{name}: this report of ddpdoctor stuck is damaged ({type(exc).__name__})") from None
    if not sighting.ranks or not 0 < sighting.world_size <= MOST:
        raise BadTarget(f"{name}: this report of ddpdoctor stuck tells of no rank")
    return sighting


MOST = 1_000_000  # ranks


def _sighted(data: Any) -> Sighted:
    found, doing = data["position"], Doing[data["doing"]]
    site = _site(found["site"]) if found["site"] is not None else None
    operation = str(found["operation"])
    position = Position(
        rank=int(found["rank"]), pid=int(found["pid"]), doing=doing, seconds=float(found["seconds"]), site=site,
        operation=operation, function=str(found["function"]),
        recent=(Communication(0, 0.0, operation, "", "", site),) if operation not in {"", *JOINS} else (),
        stack=tuple(map(_site, found["stack"])),
        counters=tuple((str(name), int(value)) for name, value in found["counters"]),
        workers=tuple(
            Worker(
                int(each["pid"]), each["site"] and _site(each["site"]), _awaited(each.get("awaited")),
                str(each.get("operation", "")),
            )
            for each in found["workers"]
        ),
        threads=None if (named := found.get("threads")) is None else tuple(
            (str(name), _site(each)) for name, each in named
        ),
        awaited=_awaited(found.get("awaited")), raised=_raised(found.get("raised")),
        caught=tuple((_site(at), int(times)) for at, times in found.get("caught", ())),
    )  # fmt: skip
    backends = tuple(map(str, data["backends"]))
    return Sighted(
        position, str(data["host"]), backends, int(data["local_size"]), str(data["moved"]), as_use(data.get("use"))
    )


def _peer(data: Any) -> Peer:
    return Peer(
        str(data["local"]), str(data["peer"]), int(data["unacked"]), int(data["tries"]), str(data["interface"]),
        bool(data["down"]), int(data.get("connecting", 0)), int(data.get("stand", 0)), bool(data.get("answers", False)),
        bool(data.get("left", False)),
    )  # fmt: skip


def _awaited(data: Any) -> Awaited | None:
    if data is None:
        return None
    what, mend, command, process, thread, *more = data
    typed, port = (*more, False, 0)[:2]
    return Awaited(str(what), str(mend), str(command), int(process), bool(thread), bool(typed), int(port))


def _raised(data: Any) -> UnderWay | None:
    return None if data is None else UnderWay(str(data[0]), _site(data[1]))


def _site(data: Any) -> Site:
    file, line, function = data
    return Site(str(file), int(line), str(function))
