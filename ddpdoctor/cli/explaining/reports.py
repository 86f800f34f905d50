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


Told = tuple[list[tuple[str, "Sighting"]], list[tuple[str, "Waiting"]]]
"""What reports tell: those of hosts with ranks, and those of hosts whose launcher has none; each with its name."""


def read(names: Sequence[str]) -> Told:
    """Read reports out of files.

    Raises:
        BadTarget: one of them cannot be read, or is none.
    """
    return told_by([(name, _text(name)) for name in names])


def told_by(reports: Sequence[tuple[str, str]]) -> Told:
    """Read reports, each with its name.

    Raises:
        BadTarget: one of them is none.
    """
    from ddpdoctor.stuck.told.launchers import read_waiting
    from ddpdoctor.stuck.told.sighting_file import read_sighting

    sightings, waiting = [], []
    for name, text in reports:
        data = _data(name, text)
        if (launcher := read_waiting(name, data)) is not None:
            waiting.append((name, launcher))
        elif (sighting := read_sighting(name, data)) is not None:
            sightings.append((name, sighting))
        else:
            raise BadTarget(f"{name}: no report of ddpdoctor stuck")
    return sightings, waiting


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadTarget(why_no_file(name)) from None
    except OSError as exc:
        raise BadTarget(f"{name}: {exc.strerror}") from None
    except ValueError:
        raise BadTarget(f"{name}: {NO_REPORT}") from None


def _data(name: str, text: str) -> object:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        raise BadTarget(f"{name}: {NO_REPORT}") from None
    return found


NO_REPORT = "no process, and no report of ddpdoctor stuck in JSON"


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
