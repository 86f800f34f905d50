"""Reads the zip archive that torch.save writes since torch 1.6."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from ddpdoctor.checkpoint.contents import CheckpointFile, Format, Location, StateDict
from ddpdoctor.checkpoint.formats import archive, archive_record
from ddpdoctor.checkpoint.formats.archive_reach import reach
from ddpdoctor.checkpoint.pickles.opcodes import interpret
from ddpdoctor.checkpoint.pickles.tensors import storage_bytes
from ddpdoctor.checkpoint.pickles.values import DamagedError, UnreadableError
from ddpdoctor.checkpoint.survey import items_of, kind_of, survey

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.pickles.pickle_vm import Data, Machine

SHOWN = 64  # bytes of a record that is wrong
VERSIONS = range(1, 11)  # caffe2/serialize/versions.h: kMin- and kMaxSupportedFileFormatVersion


def _is_version(data: bytes) -> bool:
    return data.strip().isdigit() and int(data) in VERSIONS


# Beside the pickle, and what torch demands of their contents.
NOTES: dict[str, Callable[[bytes], bool]] = {
    "version": _is_version,
    ".data/version": _is_version,
    ".format_version": lambda _: True,
    ".storage_alignment": bytes.isdigit,
    ".data/serialization_id": lambda data: "\ufffd" not in data.decode("utf-8", "replace"),
    "byteorder": {b"little", b"big"}.__contains__,
}


@dataclass(frozen=True, slots=True)
class Pickled:
    """The pickle of a file: ``data`` hold it from ``start`` to where ``machine`` stands; the zip archive around it."""

    data: bytes
    start: int
    machine: Machine
    directory: archive.Directory | None = None
    record: archive_record.Record | None = None


def read_zip(
    file: BinaryIO, blank: CheckpointFile, places: Collection[Location] | None = None, *, change: bool = False
) -> tuple[CheckpointFile, Pickled | None]:
    """Read a zip archive; ``blank`` is what is known already, ``places`` where the state dicts are, if that is.

    The bytes of its pickle, and where its names stand in them, are kept for a ``change`` alone.
    """
    blank = replace(blank, format=Format.TORCH)
    try:
        directory = archive.directory(file, blank.size)
        folder = next(directory.names()).partition("/")[0] + "/"  # torch takes that of the first record
        if found := _other_archive(directory, folder):
            return replace(blank, format=found, globals=_names_in(file, directory, folder)), None
        record = directory.record(f"{folder}data.pkl")
        data = archive_record.read(file, record) if change else b""
        length = len(directory.data)
        if not change:
            directory = replace(directory, data=b"")  # megabytes, which are read again
        root, machine = interpret(data) if change else _looked_at(file, record)
        known = described(blank, machine, root, places)
        del root
        if not change:
            known = replace(known, state_dicts=tuple(map(_without_paths, known.state_dicts)))
            directory = replace(directory, data=archive.at(file, directory.start, length))
        _check_notes(file, directory, folder)
        _check_storages(machine, directory, folder)
        if not change:  # whoever changes a file does so by himself
            reach(file, directory)
    except DamagedError as exc:
        return replace(blank, damage=str(exc)), None
    except UnreadableError as exc:
        return replace(blank, opaque=str(exc), globals=exc.names), None
    return known, Pickled(data, 0, machine, directory, record)


def _looked_at(file: BinaryIO, record: archive_record.Record) -> tuple[Any, Machine]:
    """Return what a pickle describes, without where its names stand; its bytes go as it is read."""

    def read() -> Data:
        return archive_record.read_apart(file, record)

    return interpret(read(), placed=False, again=read)


def _without_paths(state_dict: StateDict) -> StateDict:
    """Leave out the paths of layers, which were not all kept."""
    return state_dict if state_dict.metadata is None else replace(state_dict, metadata=())


def _other_archive(names: archive.Directory, folder: str) -> Format | None:
    if f"{folder}archive_format" in names or "serialized_exported_program.json" in names:
        return Format.EXPORT
    if f"{folder}constants.pkl" in names and any(name.startswith(f"{folder}code/") for name in names.names()):
        return Format.TORCHSCRIPT
    return None if f"{folder}data.pkl" in names else Format.ZIP


def _names_in(file: BinaryIO, directory: archive.Directory, folder: str) -> tuple[str, ...]:
    """Return what the pickle of an archive would import that is not torch.save's: torch.load can be given any."""
    try:
        return tuple(interpret(archive_record.read(file, directory.record(f"{folder}data.pkl")))[1].names)
    except KeyError:
        return ()
    except UnreadableError as exc:
        return exc.names


def described(
    blank: CheckpointFile, machine: Machine, root: Any, places: Collection[Location] | None = None
) -> CheckpointFile:
    """Return the description of a file with what its pickle tells."""
    found = survey(root, places)
    return replace(
        blank,
        root=kind_of(root),
        globals=tuple(machine.names),
        items=items_of(root),
        state_dicts=found.state_dicts,
        modules=found.modules,
        optimizers=found.optimizers,
    )


def _check_notes(file: BinaryIO, directory: archive.Directory, folder: str) -> None:
    """See that torch reads the small records beside the pickle, without which it loads no file."""
    if f"{folder}version" not in directory and f"{folder}.data/version" not in directory:
        raise DamagedError("the record version is missing, without which torch loads no archive")
    for name, is_right in NOTES.items():
        if f"{folder}{name}" in directory:
            found = archive_record.read(file, directory.record(f"{folder}{name}"))
            if not is_right(found):
                raise DamagedError(f"the record {name} is {found[:SHOWN]!r}, with which torch loads no archive")


def _check_storages(machine: Machine, directory: archive.Directory, folder: str) -> None:
    """See that each storage of the pickle is in the archive, as long as its tensors need it."""
    front = f"{folder}data/"
    wanted = {storage: storage_bytes(storage) for storage in machine.storages.kinds()}
    met, wrong = 0, ""
    for name, size in zip(directory.names(), directory.sizes, strict=True):
        storage = machine.storages.find(name[len(front) :]) if name.startswith(front) else None
        if storage is None:
            continue
        met += 1
        needed = wanted[storage]
        if needed is not None and needed != size and not wrong:
            wrong = f"the record {name.removeprefix(folder)} has {size} bytes, the tensors in it need {needed}"
    if met < len(machine.storages):
        there = set(directory.names())
        lost = [key for key in machine.storages if front + key not in there]
        wrong = f"{len(lost)} of {met + len(lost)} tensors' data is not in the archive, the first is data/{lost[0]}"
    if wrong:
        raise DamagedError(wrong)
