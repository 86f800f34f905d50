"""Carries out the plan of a repair: in place, or in a copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.reader import Opened, Shards, stamp
from ddpdoctor.checkpoint.rename import guard, journal
from ddpdoctor.checkpoint.rename.edits import changes, files_of
from ddpdoctor.checkpoint.rename.files import copied, one_line, unchanged, write, write_folder
from ddpdoctor.checkpoint.rename.splice import Growth, Splice
from ddpdoctor.checkpoint.rename.verify import verify
from ddpdoctor.checkpoint.safetensors import Header
from ddpdoctor.checkpoint.torchfile import Pickled
from ddpdoctor.checkpoint.values import UnreadableError
from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.rename.plan import Renamed


def changes_of(source: Opened, plan: tuple[Renamed, ...], *, in_place: bool) -> tuple[Splice | Growth, ...]:
    """Return the changes of the files; as ``changes``.

    Raises:
        BadTarget: the names cannot be changed as they are written.
    """
    try:
        return changes(source, plan, in_place=in_place)
    except UnreadableError as exc:
        raise BadTarget(f"{source.file.path} cannot be repaired: {exc}") from None


def in_place(source: Opened, plan: tuple[Renamed, ...]) -> str:
    """Change the checkpoint itself, and look again at what came out; give its name.

    Raises:
        BadTarget: it is not to be changed, or does not come out as it was meant; then it is as before.
    """
    guard.refuse_link(Path(source.file.path))
    steps = changes_of(source, plan, in_place=True)
    for step in steps:
        guard.refuse_in_place(Path(step.path))
    if not steps:
        return source.file.path
    with guard.alone(source.main):
        _refuse_changed(source)
        journal.apply(source.main, steps)
        try:
            verify(source.file.path, source.file, plan)
        except BaseException:
            journal.undo(source.main)
            raise
    return source.file.path


def _refuse_changed(source: Opened) -> None:
    parts = source.inside.parts if isinstance(source.inside, Shards) else ()
    for each in (source, *parts):
        if stamp(each.main) != each.stamp:
            raise BadTarget(f"{each.main} was changed while it was looked at")


def copy(source: Opened, plan: tuple[Renamed, ...], output: Path, *, force: bool) -> str:
    """Write a changed copy, and look at it before it gets its name; give that.

    Raises:
        BadTarget: there is something of that name, or the copy does not come out as it was meant.
    """
    folder = not isinstance(source.inside, (Pickled, Header))
    _refuse_output(source, output, folder=folder, force=force)
    steps = {Path(step.path): step for step in changes_of(source, plan, in_place=False) if isinstance(step, Splice)}
    files = files_of(source)
    for path in files:
        guard.refuse_written(path)
    fills = {path: copied(steps.get(path) or unchanged(path)) for path in files}

    def check(new: str) -> None:
        _refuse_changed(source)
        verify(new, source.file, plan)

    with one_line(str(output)):
        if folder:
            write_folder(output, fills, check)
        else:
            write(output, fills[source.main], str(source.main), check)
    return str(output)


def _refuse_output(source: Opened, output: Path, *, folder: bool, force: bool) -> None:
    if output.exists() and output.resolve() == Path(source.file.path).resolve():
        raise BadTarget(f"{output} is the checkpoint itself: use in_place (--in-place)")
    if output.is_symlink() or output.is_dir() or (output.exists() and folder):
        raise BadTarget(f"{output} is there already")
    if output.exists() and not force:
        raise BadTarget(f"{output} is there already (--force replaces it)")
    guard.refuse_unwritable_folder(output.absolute().parent)
