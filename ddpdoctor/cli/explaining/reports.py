"""What ``ddpdoctor stuck --report`` has written on several hosts, read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.facets import BadTarget
from ddpdoctor.suggest import why_no_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddpdoctor.facets import Check
    from ddpdoctor.findings import Finding
    from ddpdoctor.stuck.told.launchers import Waiting
    from ddpdoctor.stuck.told.sighting import Sighting


def read(names: Sequence[str]) -> tuple[list[tuple[str, Sighting]], list[tuple[str, Waiting]]]:
    """Read reports: those of hosts with ranks, and those of hosts whose launcher has none; each with its file.

    Raises:
        BadTarget: one of them cannot be read, or is none.
    """
    from ddpdoctor.stuck.told.launchers import read_waiting
    from ddpdoctor.stuck.told.sighting import read_sighting

    sightings, waiting = [], []
    for name in names:
        data = _data(name)
        if (launcher := read_waiting(name, data)) is not None:
            waiting.append((name, launcher))
        elif (sighting := read_sighting(name, data)) is not None:
            sightings.append((name, sighting))
        else:
            raise BadTarget(f"{name}: no report of ddpdoctor stuck")
    return sightings, waiting


def _data(name: str) -> object:
    try:
        found: object = json.loads(Path(name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadTarget(why_no_file(name)) from None
    except OSError as exc:
        raise BadTarget(f"{name}: {exc.strerror}") from None
    except (ValueError, RecursionError):
        raise BadTarget(f"{name}: no process, and no report of ddpdoctor stuck in JSON") from None
    return found


def compared(waiting: Sequence[Waiting]) -> list[tuple[Check, Finding]]:
    """Return what is wrong with the place where these launchers meet, by what each host has seen of it.

    Their lines stand in the logs of ``ddpdoctor run``, too: the checks of logs compare them.
    """
    from ddpdoctor.logs.examination import quick_examination
    from ddpdoctor.logs.read.sources import Origin

    examined = quick_examination()
    for each in waiting:
        examined.read(Origin(each.host), [f"{each.event.line}\n".encode()])
    answer = examined.answer()
    found = [each for each in (answer.cause, *answer.others) if each is not None]
    return [(each.check, each.finding) for each in found]
