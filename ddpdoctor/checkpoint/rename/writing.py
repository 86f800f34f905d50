"""Carries out the plan of a repair: in place, or in a copy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.distributed import Metadata
from ddpdoctor.checkpoint.lines import one_line
from ddpdoctor.checkpoint.reader import SUFFIXES, Opened, Shards, index_of, stamp
from ddpdoctor.checkpoint.rename import guard, journal
from ddpdoctor.checkpoint.rename.edits import changes, files_of
from ddpdoctor.checkpoint.rename.files import copied, unchanged, write, write_folder
from ddpdoctor.checkpoint.rename.splice import Growth, Splice
from ddpdoctor.checkpoint.rename.verify import verify
from ddpdoctor.checkpoint.safetensors import Header
from ddpdoctor.checkpoint.torchfile import Pickled
from ddpdoctor.checkpoint.values import UnreadableError
from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.rename.plan import Renamed

SAFE = ".safetensors"


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
    steps = changes_of(source, plan, in_place=True)
    refuse_in_place(source, steps)
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


def refuse_in_place(source: Opened, steps: Iterable[Splice | Growth]) -> None:
    """Refuse a checkpoint that is not to be changed where it is.

    Raises:
        BadTarget: it is a link, read-only, being written, or a shard, which the index would not find any more.
    """
    path = Path(source.file.path)
    guard.refuse_link(path)
    if not isinstance(source.inside, (Shards, Metadata)) and (index := index_of(path)):
        raise BadTarget(f"{path} is a shard of {index}: repair that, so that the index has the new names, too")
    for step in steps:
        guard.refuse_in_place(Path(step.path))


def refuse_copy(source: Opened, output: Path, *, force: bool) -> None:
    """Refuse what cannot be copied, or not to there.

    Raises:
        BadTarget: there is something of that name, or a file is being written.
    """
    _refuse_output(source, output, folder=_is_folder(source), force=force)
    for path in files_of(source):
        guard.refuse_written(path)


def _is_folder(source: Opened) -> bool:
    return not isinstance(source.inside, (Pickled, Header))


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
    refuse_copy(source, output, force=force)
    steps = {Path(step.path): step for step in changes_of(source, plan, in_place=False) if isinstance(step, Splice)}
    fills = {path: copied(steps.get(path) or unchanged(path)) for path in files_of(source)}

    def check(new: str) -> None:
        _refuse_changed(source)
        verify(new, source.file, plan)

    with one_line(str(output)):
        if _is_folder(source):
            write_folder(output, fills, check)
        else:
            write(output, fills[source.main], str(source.main), check)
    return str(output)


def _refuse_output(source: Opened, output: Path, *, folder: bool, force: bool) -> None:
    if output.exists() and output.resolve() == Path(source.file.path).resolve():
        raise BadTarget(f"{output} is the checkpoint itself: use in_place (--in-place)")
    if output.suffix != Path(source.file.path).suffix:
        _refuse_suffix(source, output, folder=folder)
    if output.is_symlink() or output.is_dir() or (output.exists() and folder):
        raise BadTarget(f"{output} is there already")
    if output.exists() and not force:
        raise BadTarget(f"{output} is there already (--force replaces it)")
    guard.refuse_unwritable_folder(output.absolute().parent)


def _refuse_suffix(source: Opened, output: Path, *, folder: bool) -> None:
    """Refuse a name that promises another format: whoever reads it would fail, or run what a pickle says."""
    is_safe = isinstance(source.inside, Header)
    if output.suffix in SUFFIXES and (folder or is_safe is not (output.suffix == SAFE)):
        usual = "a name without a suffix" if folder else f"a name that ends in {SAFE if is_safe else '.pt'}"
        raise BadTarget(f"{output}: the copy is a {source.file.format.value}, too; give it {usual}")
