"""torch.distributed.rpc: its ranks join no process group, and each does something else: only their meeting is told."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.host.network_context import address
from ddpdoctor.on_import import Awaited, when_imported
from ddpdoctor.watch.events import RPC, Joined
from ddpdoctor.watch.rank.hooks.process.errors import SPAWNED
from ddpdoctor.watch.rank.patch import patch

if TYPE_CHECKING:
    from types import ModuleType

    from ddpdoctor.watch.rank.patch import Wrap
    from ddpdoctor.watch.rank.recorder import Recorder

MODULE = "torch.distributed.rpc"
ALONE = 1
"""Ranks of such a group: what one trains is not compared with what others do."""


def hook(recorder: Recorder) -> list[Awaited]:
    """Replace what joins, once the user has imported RPC."""

    def of_module(module: ModuleType) -> None:
        if hasattr(module, "init_rpc"):
            recorder.late.append(patch(module, "init_rpc", _joining(recorder)))

    return [when_imported(MODULE, lambda module: recorder.safely(of_module, module))]


def _joining(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def init_rpc(*args: Any, **kwargs: Any) -> Any:
            if recorder.has_joined:  # it is told of as a rank of its process group
                return original(*args, **kwargs)
            recorder.safely(_enter, recorder, inspect.signature(original), args, kwargs)
            try:
                result = original(*args, **kwargs)
            except Exception as exc:
                recorder.explain(exc)
                raise
            recorder.safely(_joined, recorder)
            return result

        return init_rpc

    return wrap


def _enter(recorder: Recorder, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = signature.bind_partial(*args, **kwargs).arguments
    rank, size = (given.get(name) for name in ("rank", "world_size"))
    options = given.get("rpc_backend_options")
    recorder.joining(
        rank if isinstance(rank, int) else -1,
        world_size=size if isinstance(size, int) else -1,
        backend=RPC,
        address=address((), {"init_method": getattr(options, "init_method", None)}),
        spawned=_number(SPAWNED),
        launched=_number("WORLD_SIZE") if os.environ.get("TORCHELASTIC_RUN_ID") else None,
    )


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None


def _joined(recorder: Recorder) -> None:
    recorder.emit(Joined, world_size=ALONE, backend=RPC)
