"""Changes files in place, one after the other, so that a later run can take it all back.

The journal, ``.NAME.ddpdoctor-journal`` beside the file, tells the bytes that were there, and is on the disk before
anything changes. What was done is read off the files themselves, so that a kill between two steps leaves no riddle.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpdoctor.check import BadTarget
from ddpdoctor.checkpoint.mend.files import copied, sync_folder, temporary, write, write_at
from ddpdoctor.checkpoint.mend.splice import Growth, Splice

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
        """Tell from the file whether it is as ``before``, ``after``, ``between``, or something ``else``."""
        path = folder / self.name
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                file.seek(self.start)
                found = file.read(max(len(self.old), len(self.new)))
        except OSError:
            return "else"
        if self.grown and size == self.after:
            # After a power failure, zeros can stand where nothing has reached the disk.
            return {self.new: "after", self.old: "between", bytes(len(self.old)): "between"}.get(found, "else")
        if self.grown:
            return "before" if size == self.size else "else"
        if size == self.after and found.startswith(self.new):
            return "after"
        return "before" if size == self.size and found.startswith(self.old) else "else"

    def take_back(self, folder: Path) -> None:
        """Give the file its old bytes and length."""
        path = folder / self.name
        if self.grown:
            os.truncate(path, self.size)
            _sync(path)
        else:
            back = Splice(str(path), self.after, self.start, self.start + len(self.new), self.old)
            write(path, copied(back), str(path))


def journal_of(path: Path) -> Path:
    """Name the journal of a file."""
    return path.with_name(f".{path.name}.ddpdoctor-journal")


def apply(main: Path, changes: Sequence[Splice | Growth]) -> None:
    """Change files of one folder in place; the journal is that of ``main``, one of them."""
    steps = [_step(change) for change in changes]
    before = _load(main)
    if before and any(step.state(main.parent) != "after" for step in before[-1]):
        before = []  # the file is another one by now
    _save(main, [*before, steps])
    try:
        for change in changes:
            if isinstance(change, Growth):
                _grow(change)
            else:
                write(Path(change.path), copied(change), change.path)
    except BaseException:
        recover(main)
        raise


def recover(main: Path) -> bool:
    """Take back what a run has begun that did not come to its end; say whether there was something."""
    runs = _load(main)
    if not runs:
        return False
    states = [step.state(main.parent) for step in runs[-1]]
    if "between" not in states and ("after" not in states or "before" not in states):
        if set(states) == {"before"}:
            _save(main, runs[:-1])  # killed before the first change
        return False
    _undo(main, runs, states)
    return True


def undo(main: Path) -> None:
    """Take back the last run.

    Raises:
        BadTarget: there is none, or the files have been changed since.
    """
    runs = _load(main)
    if not runs:
        raise BadTarget(f"{main}: there is nothing to undo: no journal of a repair in place is beside it")
    _undo(main, runs, [step.state(main.parent) for step in runs[-1]])


def _undo(main: Path, runs: list[list[Step]], states: list[str]) -> None:
    if "else" in states:
        name = runs[-1][states.index("else")].name
        raise BadTarget(f"{main.parent / name} was changed after the repair: it cannot be undone any more")
    for step, state in reversed(list(zip(runs[-1], states, strict=True))):
        if state != "before":
            step.take_back(main.parent)
    _save(main, runs[:-1])


def _step(change: Splice | Growth) -> Step:
    name = Path(change.path).name
    if isinstance(change, Growth):
        after = change.size + len(change.data)
        return Step(name, change.size, after, after - len(change.last), change.before, change.last, grown=True)
    with Path(change.path).open("rb") as file:
        file.seek(change.start)
        old = file.read(change.stop - change.start)
    after = change.size - len(old) + len(change.data)
    return Step(name, change.size, after, change.start, old, change.data, grown=False)


def _grow(change: Growth) -> None:
    """Append: first the bytes that keep the old end valid, then all between, last those that make it count."""
    descriptor = os.open(change.path, os.O_RDWR)
    try:
        end = change.size + len(change.data) - len(change.last)
        write_at(descriptor, end, change.before)
        write_at(descriptor, change.size, change.data[: -len(change.last)])
        os.fsync(descriptor)
        write_at(descriptor, end, change.last)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _load(main: Path) -> list[list[Step]]:
    path = journal_of(main)
    runs = _read_runs(path) if path.exists() else []
    changed = {main.parent / step.name for run in runs for step in run}
    for each in {main, path, *changed}:
        temporary(each).unlink(missing_ok=True)  # of a run that was killed
    return runs


def _read_runs(path: Path) -> list[list[Step]]:
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


def _save(main: Path, runs: list[list[Step]]) -> None:
    path = journal_of(main)
    if not runs:
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
        return
    told = {"version": VERSION, "runs": [[_told(step) for step in run] for run in runs]}
    data = json.dumps(told).encode()
    write(path, lambda descriptor: write_at(descriptor, 0, data))


def _told(step: Step) -> dict[str, Any]:
    told = {name: getattr(step, name) for name in Step.__slots__}
    return told | {name: base64.b64encode(told[name]).decode("ascii") for name in ("old", "new")}
