"""Where a watched process writes, and the monitor reads: files in the session's folder, named by the process.

``PID.events`` has a JSON line an event. ``PID.pulse`` is mapped into memory: counters that only grow, and a ring of the
last communications, so that a step costs a few stores and no system call. Through ``PID.ask`` the monitor asks, and
finds the answers in ``PID.stack``, ``PID.threads`` and ``PID.flight``; ``PID.dump`` is where faulthandler writes when a
signal comes, ``PID.crash`` where it writes as the process dies of one.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddpdoctor.watch.events import Communication, Event, Site
from ddpdoctor.watch.events.steps.blocks import Block
from ddpdoctor.watch.stale_sessions import lock
from ddpdoctor.watch.wire import packed, unpacked

NAMED = "Thread "
"""What stands before a thread's name, above its stack."""
ASK, STACK, THREADS, FLIGHT, DUMP, CRASH = ".ask", ".stack", ".threads", ".flight", ".dump", ".crash"
ANSWERER = "ddpdoctor"
"""The name of the thread that answers, as the kernel knows it too."""
RING = 64  # communications that are kept
MOST_DESCRIPTIONS = 4000  # of communications: with more of them split sizes are left out
SLOT = struct.Struct("<QQQd")  # number in the process and in the group, both from 1, description, time
COUNTERS = 16
HEADER = COUNTERS * 8
BLOCKS = 128  # that are kept
BLOCK = struct.Struct("<8Q")
FIRST_BLOCK = HEADER + RING * SLOT.size
SIZE = FIRST_BLOCK + BLOCKS * BLOCK.size

BATCHES, FORWARDS, STEPS, COMMUNICATIONS, SAMPLING_MICROSECONDS, STOP, EXPLAINING, THREAD = range(8)
"""The counters: batches drawn, forwards of wrapped models, optimizer steps, communications; STOP is the monitor's.

EXPLAINING is 1 while an exception is being explained. THREAD is the kernel's number of the thread that trains, where
that is not the main one.
"""


class Writer:
    """The side of the watched process."""

    def __init__(self, session: str) -> None:
        """Make the files of this process."""
        self.pid = os.getpid()
        self.base = base = Path(session) / str(self.pid)
        self._events = os.open(base.with_suffix(".events"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        lock(self._events)
        file = os.open(base.with_suffix(".pulse"), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.ftruncate(file, SIZE)
        self._map = mmap.mmap(file, SIZE)
        os.close(file)
        self.counters = memoryview(self._map)[:HEADER].cast("Q")
        self._descriptions: dict[tuple[Any, ...], int] = {}
        self._in_group: dict[str, int] = {}

    def event(self, event: Event) -> None:
        """Append an event: one write, so that lines of a process that forked do not mix."""
        self._line(packed(event))

    def communication(self, time: float, operation: str, group: str, shapes: str, site: Site | None) -> None:
        """Put a communication into the ring."""
        key = (operation, group, shapes, site)
        description = self._descriptions.get(key)
        if description is None:
            description = self._descriptions[key] = len(self._descriptions)
            self._line(["communication", description, *key])
        number = self.counters[COMMUNICATIONS] + 1
        in_group = self._in_group[group] = self._in_group.get(group, 0) + 1
        SLOT.pack_into(self._map, HEADER + number % RING * SLOT.size, number, in_group, description, time)
        self.counters[COMMUNICATIONS] = number

    @property
    def is_full(self) -> bool:
        """Whether so many different communications were told that what differs in each call is left out."""
        return len(self._descriptions) >= MOST_DESCRIPTIONS

    def block(self, block: Block) -> None:
        """Put the sums of a few steps into their ring."""
        BLOCK.pack_into(self._map, FIRST_BLOCK + block.number % BLOCKS * BLOCK.size, *block)

    def _line(self, value: Any) -> None:
        os.write(self._events, json.dumps(value, separators=(",", ":")).encode() + b"\n")


class Reader:
    """The monitor's side, of one process."""

    def __init__(self, events: Path) -> None:
        """Begin at the start of the events."""
        self.pid = int(events.stem)
        self.base = events.with_suffix("")
        self._path = events
        self._offset = 0
        self._descriptions: dict[int, tuple[Any, ...]] = {}
        self._block = 0

    def new(self) -> Iterator[Event]:
        """Yield what was written since the last call; a line that is not complete yet waits."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                parts = json.loads(line)
                if parts[0] == "communication":
                    _, number, operation, group, shapes, site = parts
                    self._descriptions[number] = (operation, group, shapes, Site(*site) if site else None)
                else:
                    yield unpacked(parts)

    def counters(self) -> tuple[int, ...]:
        """Return the counters; all zero before the process has made its file."""
        return struct.unpack_from(f"<{COUNTERS}Q", self._pulse())

    def counts(self) -> dict[str, float]:
        """Return the counters that people read, by their name."""
        batches, forwards, steps, communications, sampling, *_ = self.counters()
        names = {"batches": batches, "forwards": forwards, "steps": steps, "communications": communications}
        return {**names, "seconds_comparing": sampling / 1e6}

    def communications(self) -> tuple[Communication, ...]:
        """Return the last communications, oldest first."""
        pulse = self._pulse()
        slots = sorted(SLOT.unpack_from(pulse, HEADER + place * SLOT.size) for place in range(RING))
        return tuple(
            Communication(in_group, time, *self._descriptions[description])
            for number, in_group, description, time in slots
            if number and description in self._descriptions
        )

    def blocks(self) -> list[Block]:
        """Return the blocks of steps that were written since the last call and are still there, oldest first."""
        pulse = self._pulse()
        slots = BLOCK.iter_unpack(memoryview(pulse)[FIRST_BLOCK:])
        found = sorted(Block(*each) for each in slots if each[0] > self._block)
        self._block = found[-1].number if found else self._block
        return found

    def stop(self) -> None:
        """Ask the process to end at its next batch or step."""
        with self._path.with_suffix(".pulse").open("r+b") as file:
            file.seek(STOP * 8)
            file.write(struct.pack("<Q", 1))

    def _pulse(self) -> bytes:
        try:
            data = self._path.with_suffix(".pulse").read_bytes()
        except FileNotFoundError:
            data = b""
        return data if len(data) == SIZE else bytes(SIZE)
