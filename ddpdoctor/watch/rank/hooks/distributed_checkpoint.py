"""torch.distributed.checkpoint: the folder that each rank writes its part of a checkpoint into."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from ddpdoctor.on_import import Awaited, when_imported
from ddpdoctor.watch.events import SavesInto
from ddpdoctor.watch.rank.patch import Wrap, patch

if TYPE_CHECKING:
    from types import ModuleType

    from ddpdoctor.watch.rank.recorder import Recorder

MODULE = "torch.distributed.checkpoint.state_dict_saver"
WRITES = "_save_state_dict"
"""What both ``save`` and ``async_save`` call, by whatever name the script has imported them."""


def hook(recorder: Recorder) -> list[Awaited]:
    """Replace what saves, once imported."""

    def of_module(module: ModuleType) -> None:
        if hasattr(module, WRITES):
            recorder.late.append(patch(module, WRITES, _saving(recorder)))

    return [when_imported(MODULE, of_module)]


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
