"""torch.distributed.checkpoint: the folder that each rank writes its part into; what a load does not ask for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from ddpdoctor.on_import import Awaited, when_imported
from ddpdoctor.watch.events import MomentsNotAsked, SavesInto
from ddpdoctor.watch.rank.patch import Wrap, patch
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from types import ModuleType

    from ddpdoctor.watch.rank.recorder import Recorder

MODULE = "torch.distributed.checkpoint.state_dict_saver"
WRITES = "_save_state_dict"
"""What both ``save`` and ``async_save`` call, by whatever name the script has imported them."""
LOADER = "torch.distributed.checkpoint.state_dict_loader"
READS = "_load_state_dict"
DEEP = 3  # dictionaries in which an optimizer is looked for


def hook(recorder: Recorder) -> list[Awaited]:
    """Replace what saves, once imported."""

    def of_module(module: ModuleType) -> None:
        if hasattr(module, WRITES):
            recorder.late.append(patch(module, WRITES, _saving(recorder)))

    def of_loader(module: ModuleType) -> None:
        if hasattr(module, READS):
            recorder.late.append(patch(module, READS, _loading(recorder)))

    return [when_imported(MODULE, of_module), when_imported(LOADER, of_loader)]


def _saving(recorder: Recorder) -> Wrap:
    numbers = count()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def save(state_dict: Any, storage_writer: Any, *args: Any, **kwargs: Any) -> Any:
            given = dict(zip(("process_group", "coordinator_rank", "no_dist"), args, strict=False)) | kwargs
            alone = given.get("no_dist") or given.get("process_group") is not None
            if recorder.is_rank and not alone:
                recorder.safely(partial(_tell, recorder, storage_writer, next(numbers)))
            return original(state_dict, storage_writer, *args, **kwargs)

        return save

    return wrap


def _tell(recorder: Recorder, writer: Any, number: int) -> None:
    folder = getattr(writer, "path", None)  # of a file system
    if isinstance(folder, (str, os.PathLike)):
        recorder.emit(SavesInto, framework=MODULE.rpartition(".")[0], number=number, folder=os.path.realpath(folder))


def _loading(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def load(state_dict: Any, storage_reader: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(state_dict, storage_reader, *args, **kwargs)
            if recorder.is_rank and recorder.rank == 0:
                recorder.safely(_compare, recorder, state_dict, storage_reader)
            return result

        return load

    return wrap


def _compare(recorder: Recorder, state_dict: Any, reader: Any) -> None:
    """Tell of optimizers without a state, for which the folder has one."""
    empty = list(_without_state(state_dict, "", DEEP))
    saved = reader.read_metadata().state_dict_metadata if empty else {}
    for key in empty:
        entries = sum(each.startswith(f"{key}.state." if key else "state.") for each in saved)
        if entries:
            folder = (
                os.path.realpath(path) if isinstance(path := getattr(reader, "path", ""), (str, os.PathLike)) else ""
            )
            recorder.emit(MomentsNotAsked, folder=folder, key=key, entries=entries, site=user_site())


def _without_state(held: Any, key: str, depth: int) -> Iterator[str]:
    """Yield the keys of what optimizers give that have not stepped: groups of parameters, and an empty state."""
    if not isinstance(held, dict) or not depth:
        return
    if held.get("state") == {} and held.get("param_groups"):
        yield key
        return
    for name, each in held.items():
        yield from _without_state(each, f"{key}.{name}" if key else str(name), depth - 1)
