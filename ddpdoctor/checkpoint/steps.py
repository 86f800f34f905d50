"""The journal of repairs in place: what each of them did to which file, and how far it came."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ddpdoctor.checkpoint.beside import journal_of
from ddpdoctor.facets import BadTarget

VERSION = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one file, ``name``, beside the journal: ``old`` bytes at ``start`` became ``new`` ones.

    ``size`` is the length of the file before, ``after`` that behind the change. A file that has grown is cut back, any
    other written again; ``old`` is what stands at the end of a growing one until all is there.
    """

    name: str
    size: int
    after: int
    start: int
    old: bytes
    new: bytes
    grown: bool

    def state(self, folder: Path) -> str:
        """Return whether the file is as ``before``, ``after``, ``between``, or something ``else``."""
        path = folder / self.name
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                file.seek(self.start)
                found = file.read(max(len(self.old), len(self.new)))
                if self.grown:
                    return self._state_of_grown(file, size, found)
        except OSError:
            return "else"
        if size == self.after and found.startswith(self.new):
            return "after"
        return "before" if size == self.size and found.startswith(self.old) else "else"

    def _state_of_grown(self, file: BinaryIO, size: int, found: bytes) -> str:
        """Return the state of a file that was to grow, of ``size`` bytes now, with these at ``start``.

        A write that a power failure has torn leaves some of the old bytes and some of the new ones, or zeros where
        nothing has reached the disk.
        """
        if size == self.size:
            return "before"
        if size == self.after:
            mixed = all(each in {old, new, 0} for each, old, new in zip(found, self.old, self.new, strict=True))
            return "after" if found == self.new else "between" if mixed else "else"
        if not self.start <= size < self.after:
            return "else"
        file.seek(self.size)
        is_hole = not any(file.read(self.start - self.size))
        return "between" if is_hole and self.old.startswith(found) else "else"


def is_half_done(states: Collection[str]) -> bool:
    """Whether a run with its files in these states did not come to its end."""
    return "between" in states or ("after" in states and "before" in states)


def read_runs(path: Path) -> list[list[Step]]:
    """Read a journal.

    Raises:
        BadTarget: it is none, or one of another version.
    """
    try:
        told = json.loads(path.read_bytes())
        if told["version"] != VERSION:
            raise BadTarget(f"{path} was written by another version of ddpdoctor")
        return [
            [Step(**{name: _read(name, value) for name, value in step.items()}) for step in run] for run in told["runs"]
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadTarget(f"{path} is no journal of ddpdoctor: move it away") from None


def _read(name: str, value: Any) -> Any:
    if name == "name" and (not isinstance(value, str) or Path(value).name != value):
        raise ValueError(name)
    return base64.b64decode(value) if name in {"old", "new"} else value


def was_killed(main: Path) -> bool:
    """Whether the last repair in place of a checkpoint did not come to its end, and can be taken back."""
    try:
        runs = read_runs(journal_of(main))
    except (BadTarget, OSError):
        return False
    states = [step.state(main.parent) for step in runs[-1]] if runs else []
    return is_half_done(states) and "else" not in states


def written_runs(runs: list[list[Step]]) -> bytes:
    """Return the contents of a journal."""
    return json.dumps({"version": VERSION, "runs": [[_told(step) for step in run] for run in runs]}).encode()


def _told(step: Step) -> dict[str, Any]:
    told = {name: getattr(step, name) for name in Step.__slots__}
    return told | {name: base64.b64encode(told[name]).decode("ascii") for name in ("old", "new")}
