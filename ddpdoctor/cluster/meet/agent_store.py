"""torchrun's own store, behind the master's port: the hosts find each other through it. What is done here, ranks do."""

from __future__ import annotations

import datetime as dt

CONNECT = 30  # seconds
KEY = "ddpdoctor/port"


def put(master: str, port: int, key: str, value: str) -> None:
    """Write down a text for all hosts."""
    _store(master, port).set(key, value)


def get(master: str, port: int, key: str, seconds: float) -> str:
    """Return what another host wrote down, as soon as it has; it is waited for so long."""
    store = _store(master, port)
    store.wait([key], dt.timedelta(seconds=seconds))
    value: bytes = store.get(key)
    return value.decode("ascii", "replace")[:64]


def _store(master: str, port: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - torch is not imported here
    import torch.distributed as dist

    return dist.TCPStore(master, port, None, False, dt.timedelta(seconds=CONNECT), wait_for_workers=False)  # type: ignore[attr-defined]  # noqa: FBT003 - torch exports it, but not to type checkers
