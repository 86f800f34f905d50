"""Process groups: joining and leaving, and the making of groups."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.host.network_context import address, backend, network, rendezvous
from ddpdoctor.host.process.parents import parent_of
from ddpdoctor.watch.event_log import Reader
from ddpdoctor.watch.events import GroupMade, Joined, Left
from ddpdoctor.watch.rank.hooks.parallel.deepspeed import hook_when_imported
from ddpdoctor.watch.rank.hooks.process.errors import SPAWNED, stay_outermost
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.rehearsal.in_ranks import without_gpu
from ddpdoctor.watch.user_frames import calling_package, user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.recorder import Recorder

MOST = 200  # groups that are told


def hook(recorder: Recorder) -> list[Patch]:
    """Replace the functions that make and end groups, under each name that torch has for them."""
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    patches = []
    for module in (dist, c10d):  # the package re-exports what the module defines
        patches.append(patch(module, "new_group", _new_group(recorder)))
        patches.append(patch(module, "init_process_group", _joining(recorder)))
        patches.append(patch(module, "destroy_process_group", _leaving(recorder)))
    mesh = sys.modules.get("torch.distributed.device_mesh")
    if hasattr(mesh, "init_process_group"):  # init_device_mesh makes the default group by a name of its own
        patches.append(patch(mesh, "init_process_group", _joining(recorder)))
    return patches


def _new_group(recorder: Recorder) -> Wrap:
    calls = count()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank and not kwargs.get("use_local_synchronization"):
                recorder.safely(_record_group, recorder, ranks, calls)
            return original(ranks, *args, **kwargs)

        return new_group

    return wrap


def _record_group(recorder: Recorder, ranks: Any, calls: Iterator[int]) -> None:
    """Record which ranks a group is made of: all ranks make all groups in one order, as they call collectives."""
    if ranks is None or (isinstance(ranks, (list, tuple)) and all(isinstance(each, int) for each in ranks)):
        said = "all ranks" if ranks is None else str(sorted(ranks))
        recorder.writer.communication(time.time(), "new_group", "new groups", said, site := user_site())
        if next(calls) < MOST and not calling_package():
            recorder.emit(GroupMade, ranks=said, site=site)


def _joining(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            recorder.safely(_enter, recorder, args, kwargs)
            rehearsal = recorder.settings.rehearsal
            if rehearsal is not None and rehearsal.no_gpu:
                args, kwargs = without_gpu(args, kwargs)
            try:
                result = original(*args, **kwargs)
            except Exception as exc:
                said = str(exc)
                recorder.explain(
                    exc, lambda: {"seen": (*rendezvous(args, kwargs), *network(said)), "within": _within(recorder)}
                )
                raise
            recorder.safely(recorder.joined)
            recorder.safely(stay_outermost, recorder)
            recorder.safely(hook_when_imported, recorder)
            return result

        return init_process_group

    return wrap


def _enter(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def told(argument: str, variable: str) -> int:
        given = kwargs.get(argument, -1)
        if isinstance(given, int) and given >= 0:
            return given
        number = _set(variable)
        return -1 if number is None else number

    meeting = address(args, kwargs)
    recorder.joining(
        told("rank", "RANK"),
        world_size=told("world_size", "WORLD_SIZE"),
        backend=backend(args, kwargs),
        address=meeting,
        store_written=_written(meeting),
        local_size=_set("LOCAL_WORLD_SIZE"),
        spawned=_set(SPAWNED),
        launched=_set("WORLD_SIZE") if os.environ.get("TORCHELASTIC_RUN_ID") else None,
        store_port=recorder.given_port if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else "",
        above=tuple(_above(os.getppid())),
    )


def _above(pid: int) -> Iterator[int]:
    """Yield a process and those that it descends from, as far as the system tells."""
    with suppress(OSError, ValueError, IndexError):
        while pid > 1:
            yield pid
            pid = parent_of(pid)


def _within(recorder: Recorder) -> int:
    """Return the process above this one that is in a group as this very rank; 0 if there is none."""
    folder = Path(recorder.settings.session)
    for pid in _above(os.getppid()) if recorder.is_rank and recorder.settings.session else ():
        events = list(Reader(path).new()) if (path := folder / f"{pid}.events").is_file() else []
        member = any(isinstance(each, Joined) and each.rank == recorder.rank for each in events)
        if member and not any(isinstance(each, Left) for each in events):
            return pid
    return 0


def _written(meeting: str) -> float:
    """Return when the file of a file:// store was last written; 0 where it is new, empty, or no file."""
    path = Path(meeting.removeprefix("file://"))
    if not meeting.startswith("file://") or not path.is_file():
        return 0.0
    state = path.stat()
    return state.st_mtime if state.st_size else 0.0


def _set(variable: str) -> int | None:
    """Return the number that a variable holds; None where it holds none."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None


def _leaving(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            if not args and not kwargs:
                recorder.safely(recorder.left)
            return original(*args, **kwargs)

        return destroy_process_group

    return wrap
