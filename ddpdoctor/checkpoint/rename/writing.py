"""Carries out the plan of a repair: in place, or in a copy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.contents import Format
from ddpdoctor.checkpoint.formats.distributed import Metadata
from ddpdoctor.checkpoint.lines import one_line
from ddpdoctor.checkpoint.pickles.values import UnreadableError
from ddpdoctor.checkpoint.reader import SUFFIXES, Opened, Shards, index_of, stamp
from ddpdoctor.checkpoint.rename import guard, journal
from ddpdoctor.checkpoint.rename.edit.convert import fill_from, refuse_conversion
from ddpdoctor.checkpoint.rename.edit.edits import changes, files_of
from ddpdoctor.checkpoint.rename.files import copied, unchanged, write, write_folder
from ddpdoctor.checkpoint.rename.splice import Growth, Splice
from ddpdoctor.checkpoint.rename.verify import verify
from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import CheckpointFile
    from ddpdoctor.checkpoint.rename.plan import Renamed

SAFE = ".safetensors"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A repair that needs but to be carried out; of the contents of the files, which can be large, only the changes.

    ``stamps`` are the states of the files that were read, ``copied`` the files of a copy, which is a ``folder`` or not.
    """

    file: CheckpointFile
    main: Path
    plan: tuple[Renamed, ...]
    steps: tuple[Splice | Growth, ...]
    stamps: tuple[tuple[Path, tuple[int, int, int]], ...]
    copied: tuple[Path, ...]
    folder: bool


def prepared(source: Opened, plan: tuple[Renamed, ...], *, in_place: bool) -> Prepared:
    """Work out the changes of the files.

    Raises:
        BadTarget: the names cannot be changed as they are written.
    """
    try:
        steps = changes(source, plan, in_place=in_place)
    except UnreadableError as exc:
        raise BadTarget(f"{source.file.path} cannot be repaired: {exc}") from None
    parts = source.inside.parts if isinstance(source.inside, Shards) else ()
    stamps = tuple((each.main, each.stamp) for each in (source, *parts))
    folder = isinstance(source.inside, (Shards, Metadata))
    return Prepared(source.file, source.main, plan, steps, stamps, files_of(source), folder)


def in_place(ready: Prepared) -> str:
    """Change the checkpoint itself, and look again at what came out; give its name.

    Raises:
        BadTarget: it is not to be changed, or does not come out as it was meant; then it is as before.
    """
    refuse_in_place(ready)
    if not ready.steps:
        return ready.file.path
    with guard.alone(ready.main):
        _refuse_changed(ready)
        journal.apply(ready.main, ready.steps)
        try:
            verify(ready.file.path, ready.file, ready.plan)
        except BaseException:
            journal.undo(ready.main)
            raise
    return ready.file.path


def refuse_in_place(ready: Prepared) -> None:
    """Refuse a checkpoint that is not to be changed where it is.

    Raises:
        BadTarget: it is a link, read-only, being written, or a shard, which the index would not find any more.
    """
    path = Path(ready.file.path)
    guard.refuse_link(path)
    if not ready.folder and (index := index_of(path)):
        raise BadTarget(f"{path} is a shard of {index}: repair that, so that the index has the new names, too")
    for step in ready.steps:
        guard.refuse_in_place(Path(step.path))


def refuse_copy(ready: Prepared, output: Path, *, force: bool) -> None:
    """Refuse what cannot be copied, or not to there.

    Raises:
        BadTarget: there is something of that name, or a file is being written.
    """
    _refuse_output(ready, output, force=force)
    for path in ready.copied:
        guard.refuse_written(path)


def _refuse_changed(ready: Prepared) -> None:
    for path, before in ready.stamps:
        if stamp(path) != before:
            raise BadTarget(f"{path} was changed while it was looked at")


def copy(ready: Prepared, output: Path, *, force: bool) -> str:
    """Write a changed copy, and look at it before it gets its name; give that.

    Raises:
        BadTarget: there is something of that name, or the copy does not come out as it was meant.
    """
    refuse_copy(ready, output, force=force)
    steps = {Path(step.path): step for step in ready.steps if isinstance(step, Splice)}
    fills = {path: copied(steps.get(path) or unchanged(path)) for path in ready.copied}

    def check(new: str) -> None:
        _refuse_changed(ready)
        verify(new, ready.file, ready.plan, str(output))

    with one_line(str(output)):
        if _converts(ready, output):
            new = {old: name for each in ready.plan for old, name in each.renamed}
            write(output, fill_from(str(ready.main), new), str(ready.main), check)
        elif ready.folder:
            write_folder(output, fills, check)
        else:
            write(output, fills[ready.main], str(ready.main), check)
    return str(output)


def _converts(ready: Prepared, output: Path) -> bool:
    """Whether the copy of a file of torch.save is to be a safetensors file."""
    return output.suffix == SAFE and not ready.folder and ready.file.format is Format.TORCH


def _refuse_output(ready: Prepared, output: Path, *, force: bool) -> None:
    if output.exists() and output.resolve() == Path(ready.file.path).resolve():
        raise BadTarget(f"{output} is the checkpoint itself: use in_place (--in-place)")
    if _converts(ready, output):
        refuse_conversion(ready.file)
    elif output.suffix != Path(ready.file.path).suffix:
        _refuse_suffix(ready, output)
    if output.is_symlink() or output.is_dir() or (output.exists() and ready.folder):
        raise BadTarget(f"{output} is there already")
    if output.exists() and not output.is_file():
        raise BadTarget(
            f"{output} is there already, and is no file that could be replaced: a device, a pipe or a socket"
        )
    if output.exists() and not force:
        raise BadTarget(f"{output} is there already (--force replaces it)")
    guard.refuse_unwritable_folder(output.absolute().parent)


def _refuse_suffix(ready: Prepared, output: Path) -> None:
    """Refuse a name that promises another format: whoever reads it would fail, or run what a pickle says."""
    is_safe = ready.file.format is Format.SAFETENSORS
    if output.suffix in SUFFIXES and (ready.folder or is_safe is not (output.suffix == SAFE)):
        usual = "a name without a suffix" if ready.folder else f"a name that ends in {SAFE if is_safe else '.pt'}"
        raise BadTarget(f"{output}: the copy is a {ready.file.format.value}, too; give it {usual}")
