"""What writes files by code of its own, not by Python's ``open``: noted as what ``open`` writes is."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpdoctor.files.journal import overwriting
from ddpdoctor.on_import import when_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class Writer(NamedTuple):
    """A module, the function or method of it that writes a file, and where its path is among the arguments."""

    module: str
    name: str
    place: int
    word: str


WRITERS = (
    Writer("torch", "save", 1, "f"),
    Writer("torch.jit", "save", 1, "f"),
    Writer("torch.jit", "RecursiveScriptModule.save", 1, "f"),
    Writer("torch.export", "save", 1, "f"),
    Writer("safetensors.torch", "save_file", 1, "filename"),
    Writer("safetensors.numpy", "save_file", 1, "filename"),
    Writer("cv2", "imwrite", 0, "filename"),
    Writer("h5py", "File.__init__", 1, "name"),
    Writer("pyarrow.parquet", "write_table", 1, "where"),
    Writer("torchaudio", "save", 0, "uri"),
    Writer("soundfile", "write", 0, "file"),
)
READS = "r"
"""The mode, also where none is said, in which h5py opens a file to read it alone."""


def note_native_writers(session: str) -> None:
    """Note from now on what these are about to write, in this process."""
    for writer in WRITERS:
        when_imported(writer.module, lambda module, writer=writer: _replace(module, writer, Path(session)))  # type: ignore[misc]


def _replace(module: ModuleType, writer: Writer, session: Path) -> None:
    *owners, name = writer.name.split(".")
    owner: Any = getattr(module, owners[0], None) if owners else module
    if not hasattr(owner, name):
        return  # of another version

    setattr(owner, name, _noting(getattr(owner, name), writer, session))


def _noting(original: Callable[..., Any], writer: Writer, session: Path) -> Callable[..., Any]:
    @functools.wraps(original)
    def write(*args: Any, **options: Any) -> Any:
        path = args[writer.place] if len(args) > writer.place else options.get(writer.word)
        mode = (args[2] if len(args) > 2 else options.get("mode", READS)) if writer.module == "h5py" else ""  # noqa: PLR2004 - self, name and mode
        if isinstance(path, (str, bytes, os.PathLike)) and mode != READS:
            overwriting(session, os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 - a link stays one
        return original(*args, **options)

    return write
