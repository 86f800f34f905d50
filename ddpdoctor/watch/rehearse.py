"""A rehearsal: the user's own launch, with its epochs cut short, and a clean end that all ranks reach together."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.users import is_users

if TYPE_CHECKING:
    from ddpdoctor.watch.settings import Rehearsal


class RehearsalOver(SystemExit):
    """The rehearsal has seen enough: raised at the start of an epoch, where every rank arrives."""


def cut(batches: int, rehearsal: Rehearsal) -> bool:
    """Say whether a pass ends here: after enough batches, and only for a ``for`` loop.

    A bare ``next(iterator)`` that met an early StopIteration would fail where the training does not.
    """
    return batches >= rehearsal.batches and _in_for_loop()


def without_gpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give what init_process_group is to be told where there is no GPU: gloo in place of NCCL."""
    import torch

    backend = str(args[0] if args else kwargs.get("backend", ""))
    if torch.cuda.is_available() or "nccl" not in backend.lower():
        return args, kwargs
    kept = {name: value for name, value in kwargs.items() if name not in {"backend", "device_id", "pg_options"}}
    return ("gloo", *args[1:]), kept


def _in_for_loop() -> bool:
    """Say whether the user's frame that asks for a batch is at a FOR_ITER instruction, or a library stands between."""
    import dis

    frame = sys._getframe(3)  # noqa: SLF001 - the caller of the iterator's __next__
    code = frame.f_code
    at_for = dis.opname[code.co_code[frame.f_lasti]] == "FOR_ITER"
    return at_for or (not is_users(code.co_filename) and _for_above(frame.f_back))


def _for_above(frame: object) -> bool:
    """Say whether a library's generator (tqdm, accelerate) was asked by a ``for`` loop."""
    import dis

    while frame is not None:
        code = frame.f_code  # type: ignore[attr-defined]  # a frame
        if dis.opname[code.co_code[frame.f_lasti]] == "FOR_ITER":  # type: ignore[attr-defined]  # as above
            return True
        if is_users(code.co_filename):
            return False
        frame = frame.f_back  # type: ignore[attr-defined]  # as above
    return False
