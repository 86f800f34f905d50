"""torch's flight recorder, asked while a rank hangs: the collectives that are under way, DDP's own among them.

torch 2.13 records gloo's and NCCL's collectives without being told to; older versions record NCCL's where
TORCH_NCCL_TRACE_BUFFER_SIZE (TORCH_FR_BUFFER_SIZE) is set. Source: torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ddpdoctor.watch.events import Pending

PATIENCE = 1.0  # seconds: a process that holds the GIL in native code does not answer
SHOWN = 4


def answer(base: Path) -> None:
    """Start a thread that writes the recorder's entries to ``BASE.flight`` whenever a byte comes through ``BASE.ask``.

    It sleeps in a read otherwise, without the GIL. Where torch has no recorder that speaks JSON, nothing is started.
    """
    import torch._C._distributed_c10d as c10d

    dump = getattr(c10d, "_dump_fr_trace_json", None)
    if dump is None:
        return
    asked = base.with_suffix(".ask")
    os.mkfifo(asked, 0o600)
    descriptor = os.open(asked, os.O_RDWR)  # both ends: a read then waits for the next question
    threading.Thread(target=_serve, args=(descriptor, base, dump), name="ddpdoctor", daemon=True).start()


def _serve(descriptor: int, base: Path, dump: Callable[[], Any]) -> None:
    with suppress(OSError):  # the session is gone
        while os.read(descriptor, 1):
            text = dump()
            partial = base.with_suffix(".flight-partial")
            partial.write_bytes(text if isinstance(text, bytes) else str(text).encode())
            partial.rename(base.with_suffix(".flight"))


def pending(bases: Iterable[Path]) -> dict[int, tuple[Pending, ...]]:
    """Ask processes, by the stem of their files, for the collectives that they began and that are not complete."""
    waiting = {}
    for base in bases:
        base.with_suffix(".flight").unlink(missing_ok=True)
        with suppress(OSError):
            descriptor = os.open(base.with_suffix(".ask"), os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, b"?")
            os.close(descriptor)
            waiting[int(base.name)] = base.with_suffix(".flight")
    until = time.monotonic() + PATIENCE
    found: dict[int, tuple[Pending, ...]] = {}
    while len(found) < len(waiting) and time.monotonic() < until:
        time.sleep(0.02)
        for pid, path in waiting.items():
            if pid not in found and path.is_file():
                found[pid] = parse(path.read_text(encoding="utf-8", errors="replace"))
    return found


def parse(text: str) -> tuple[Pending, ...]:
    """Give the entries that are not retired, oldest first; none where the text is no dump."""
    try:
        entries = [each for each in json.loads(text)["entries"] if each["retired"] is False]
        return tuple(
            Pending(
                operation=str(each["profiling_name"]).partition(":")[2] or str(each["profiling_name"]),
                group=str(each["process_group"][0]),
                number=int(each["p2p_seq_id"] if each["is_p2p"] else each["collective_seq_id"]),
                shapes=", ".join(map(str, each["input_sizes"][:SHOWN])),
            )
            for each in entries[:SHOWN]
        )
    except (ValueError, KeyError, TypeError, IndexError):
        return ()
