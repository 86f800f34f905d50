"""A rehearsal: the user's own launch, with its epochs cut short, and a clean end that all ranks reach together."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.host.network_context import backend
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpdoctor.watch.settings import Rehearsal

PATIENCE = 3.0  # seconds in which the other ranks come to the same failure


class RehearsalOver(SystemExit):
    """The rehearsal has seen enough: raised at the start of an epoch, where every rank arrives."""


class Rebuilt:
    """Lets a rehearsal go on past unused parameters, which end a training at its second step: more may be wrong.

    DistributedDataParallel is built anew over the same module, told to look for them. That takes all ranks.
    """

    def __init__(self, session: str, name: str, build: Callable[[], None]) -> None:
        """Keep how to ``build``; ``name`` is that of the model, on every rank."""
        self._folder, self._name, self._build = Path(session), name, build

    def goes_on(self, model: Any, exc: Exception) -> bool:
        """Build anew, if all ranks have come to the same failure; say whether that was done."""
        from ddpdoctor.examine.model.steps import UNUSED

        if UNUSED not in str(exc) or model.static_graph or getattr(model, "_comm_hooks", ()) or not self._all_here():
            return False
        training = model.training
        self._build()
        model.train(training)
        return True

    def _all_here(self) -> bool:
        import torch.distributed as dist

        files = [self._folder / f"{self._name}.{rank}.unused" for rank in range(dist.get_world_size())]
        files[dist.get_rank()].touch()
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if all(file.exists() for file in files):
                return True
            time.sleep(0.01)
        return False


def cut(batches: int, rehearsal: Rehearsal) -> bool:
    """Whether a pass ends here: after enough batches, and only for a ``for`` loop.

    A bare ``next(iterator)`` that met an early StopIteration would fail where the training does not.
    """
    return batches >= rehearsal.batches and _in_for_loop()


def without_gpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what init_process_group is to be told where there is no GPU: gloo in place of NCCL."""
    import torch

    if torch.cuda.is_available() or "nccl" not in backend(args, kwargs).lower():
        return args, kwargs
    kept = {name: value for name, value in kwargs.items() if name not in {"backend", "device_id", "pg_options"}}
    return ("gloo", *args[1:]), kept


def _in_for_loop() -> bool:
    """Whether the user's frame that asks for a batch is at a FOR_ITER instruction, or a library stands between."""
    import dis

    frame = sys._getframe(3)  # noqa: SLF001 - the caller of the iterator's __next__
    code = frame.f_code
    at_for = dis.opname[code.co_code[frame.f_lasti]] == "FOR_ITER"
    return at_for or (not is_users(code.co_filename) and _for_above(frame.f_back))


def _for_above(frame: object) -> bool:
    """Whether a library's generator (tqdm, accelerate) was asked by a ``for`` loop."""
    import dis

    while frame is not None:
        code = frame.f_code  # type: ignore[attr-defined]  # a frame
        if dis.opname[code.co_code[frame.f_lasti]] == "FOR_ITER":  # type: ignore[attr-defined]  # as above
            return True
        if is_users(code.co_filename):
            return False
        frame = frame.f_back  # type: ignore[attr-defined]  # as above
    return False
