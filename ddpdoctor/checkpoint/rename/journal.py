"""Changes files in place, one after the other, so that a later run can take it all back.

The journal, ``.NAME.ddpdoctor-journal`` beside the file, tells the bytes that were there, and is on the disk before
anything changes. What was done is read off the files themselves, so that a kill between two steps leaves no riddle.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ddpdoctor.checkpoint.beside import journal_of, temporary
from ddpdoctor.checkpoint.rename.files import copied, sync_folder, write, write_at
from ddpdoctor.checkpoint.rename.splice import Growth, Splice
from ddpdoctor.checkpoint.steps import Step, is_half_done, read_runs, written_runs
from ddpdoctor.facets import BadTarget


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
    if not is_half_done(states):
        if set(states) == {"before"}:
            _save(main, runs[:-1])  # killed before the first change
        return False
    _undo(main, *last_run(main))
    return True


def undo(main: Path) -> None:
    """Take back the last run.

    Raises:
        BadTarget: there is none, or the files have been changed since.
    """
    _undo(main, *last_run(main))


def last_run(main: Path) -> tuple[list[list[Step]], list[str]]:
    """Return the runs, and in which state the files of the last one are, which can be taken back.

    Raises:
        BadTarget: as ``undo``.
    """
    runs = _load(main)
    if not runs:
        raise BadTarget(f"{main}: there is nothing to undo: no journal of a repair in place is beside it")
    states = [step.state(main.parent) for step in runs[-1]]
    if "else" in states:
        name = runs[-1][states.index("else")].name
        raise BadTarget(f"{main.parent / name} was changed after the repair: it cannot be undone any more")
    return runs, states


def _undo(main: Path, runs: list[list[Step]], states: list[str]) -> None:
    for step, state in reversed(list(zip(runs[-1], states, strict=True))):
        if state != "before":
            _take_back(step, main.parent)
    _save(main, runs[:-1])


def _take_back(step: Step, folder: Path) -> None:
    """Restore the old bytes and length of a file."""
    path = folder / step.name
    if step.grown:
        os.truncate(path, step.size)
        _sync(path)
    else:
        back = Splice(str(path), step.after, step.start, step.start + len(step.new), step.old)
        write(path, copied(back), str(path))


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
    runs = read_runs(path) if path.exists() else []
    changed = {main.parent / step.name for run in runs for step in run}
    for each in {main, path, *changed}:
        temporary(each).unlink(missing_ok=True)  # of a run that was killed
    return runs


def _save(main: Path, runs: list[list[Step]]) -> None:
    path = journal_of(main)
    if not runs:
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
        return
    data = written_runs(runs)
    write(path, lambda descriptor: write_at(descriptor, 0, data))
