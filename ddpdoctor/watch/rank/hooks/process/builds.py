"""The lock under which extensions are built, which ranks wait for before they join."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.host.process.build_lock import left_since
from ddpdoctor.watch.events import BuildLockLeft
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.recorder import Recorder


def hook(recorder: Recorder) -> list[Patch]:
    """Replace what waits for the lock; DeepSpeed, and all that torch builds when it is first used, come there."""
    from torch.utils.file_baton import FileBaton

    return [patch(FileBaton, "wait", _waiting(recorder))]


def _waiting(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(baton: Any, *args: Any, **kwargs: Any) -> Any:
            over = threading.Event()
            arguments = (recorder, str(baton.lock_file_path), user_site(), over)
            threading.Thread(target=recorder.safely, args=(_look, *arguments), daemon=True).start()
            try:
                return original(baton, *args, **kwargs)
            finally:
                over.set()

        return wait

    return wrap


def _look(recorder: Recorder, path: str, site: Site | None, over: threading.Event) -> None:
    """Look now and then whether anybody holds the lock, and tell once that nobody does."""
    while not over.wait(recorder.settings.hang_after):
        if (age := left_since(path)) is not None and not over.is_set():
            recorder.become_rank(None)
            recorder.emit(BuildLockLeft, path=path, age=age, site=site)
            return
