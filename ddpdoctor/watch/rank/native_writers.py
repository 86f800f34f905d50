"""What writes files by code of its own, not by Python's ``open``: noted in a rehearsal as what ``open`` writes is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpdoctor.watch.rank.on_import import when_imported
from ddpdoctor.watch.rank.patch import patch
from ddpdoctor.watch.rehearsal.file_journal import overwriting

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
"""Besides ``torch.save``, which the watch replaces itself."""
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

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **options: Any) -> Any:
            path = args[writer.place] if len(args) > writer.place else options.get(writer.word)
            mode = (args[2] if len(args) > 2 else options.get("mode", READS)) if writer.module == "h5py" else ""  # noqa: PLR2004 - self, name and mode
            if isinstance(path, (str, bytes, os.PathLike)) and mode != READS:
                overwriting(session, os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 - a link stays one
            return original(*args, **options)

        return write

    patch(owner, name, wrap)
