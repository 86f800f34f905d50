"""The machine that a pickle is a program for, with inert values in place of whatever the program would make.

Everything is bounded: the number of steps, the containers among them, the bytes of text. A declared length is
compared with what the file holds before anything is allocated, and nothing recurses.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from bisect import bisect, bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from ddpdoctor.checkpoint.pickles.storages import Storages
from ddpdoctor.checkpoint.pickles.values import DamagedError, Name, Text, UnreadableError, named, text

MOST_STEPS = 20_000_000
CONTAINER_COST = 4  # steps that a new container counts in addition: it takes memory
MOST_BYTES = 1 << 28  # of strings; inline arrays of training states are of this kind
LONGEST_LINE = 1 << 16
RELEASED = 1 << 20  # bytes that are given back at once
STOP = ord(".")
Data = bytes | mmap.mmap


class NotQuickError(Exception):
    """The pickle does something that the shortcut cannot follow: it must be interpreted opcode by opcode."""


class Runs:
    """The part of the memo that was filled by runs of values at once: 200,000 tensors in a dict take 60 MB more."""

    def __init__(self) -> None:
        """Begin with none."""
        self._starts: list[int] = []
        self._columns: list[tuple[tuple[array[int], Sequence[Any]], ...]] = []

    def add(self, start: int, *columns: tuple[array[int], Sequence[Any]]) -> None:
        """Add a run whose numbers begin at ``start``: columns of rising numbers, with their values."""
        self._starts.append(start)
        self._columns.append(columns)

    def get(self, index: int) -> Any:
        """Return the value of a number; None where there is none."""
        run = bisect(self._starts, index) - 1
        for numbers, values in self._columns[run] if run >= 0 else ():
            at = bisect_left(numbers, index)
            if at < len(numbers) and numbers[at] == index:
                return values[at]
        return None

    def clear(self) -> None:
        """Forget them."""
        self._starts.clear()
        self._columns.clear()


class Machine:
    """Reads one pickle from ``data``, from the position ``at``, which ends up behind it.

    ``names`` and ``storages`` are the globals and the storages that were met, in order; ``fetched`` the positions that
    fetch a string from the memo, each with the position that spells it out; ``frames`` the positions of frames.
    With ``quick``, tensors are read by a shortcut, and ``skipped`` are the strings whose fetches it passed over; unless
    ``placed``, their names are plain strings, which take a third of the memory of those that know where they stand.
    With ``releases``, the bytes that were read are gone.
    """

    def __init__(self, data: Data, at: int = 0, *, quick: bool = False, placed: bool = True) -> None:
        """Prepare to read."""
        self.data = data
        self.at = at
        self.quick = quick
        self.placed = placed
        self.releases = False
        self.names: dict[str, Name] = {}
        self.storages = Storages()
        self.fetched: list[tuple[int, int]] = []
        self.skipped: set[int] = set()
        self.frames: list[int] = []
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.runs = Runs()
        self.next_put = 0  # the number that the next PUT has, as picklers of today count
        self._opcode = at
        self._released = 0
        self._steps = MOST_STEPS
        self._bytes = MOST_BYTES
        self._below: list[list[Any]] = []

    def run(self, handlers: Sequence[Callable[[Machine], object]]) -> Any:
        """Interpret up to the STOP opcode and return the value; ``handlers`` say what each opcode does.

        Raises:
            DamagedError: the data end within the pickle.
            UnreadableError: it is no pickle, or one that is not understood.
            NotQuickError: the shortcut does not do.
        """
        data = self.data
        try:
            while True:
                at = self.at
                if at >= len(data):
                    raise DamagedError("its pickle ends before its STOP opcode")
                code = data[at]
                self._opcode = at
                self.at = at + 1
                if code == STOP:
                    return self.stack.pop()
                self.spend(1)
                handlers[code](self)
        except IndexError:
            raise UnreadableError("its pickle takes from an empty stack") from None
        except (ValueError, TypeError, OverflowError) as exc:
            raise UnreadableError(f"its pickle is malformed: {exc}") from None

    def around(self) -> Sequence[Any]:
        """Return the stack below the topmost mark."""
        return self._below[-1] if self._below else ()

    def release(self) -> None:
        """Give the memory of what was read back."""
        if self.releases and isinstance(self.data, mmap.mmap) and self.at - self._released > RELEASED:
            stop = self.at // mmap.PAGESIZE * mmap.PAGESIZE
            self.data.madvise(mmap.MADV_DONTNEED, self._released, stop - self._released)
            self._released = stop

    def forget(self) -> None:
        """Let go of what only a rewriting, or a look at the storages, needs."""
        self.storages.clear()
        self.fetched.clear()
        self.names.clear()

    def spend(self, steps: int) -> None:
        """Count steps."""
        self._steps -= steps
        if self._steps < 0:
            raise UnreadableError("its pickle takes too many steps")

    def take(self, count: int) -> bytes:
        """Read exactly ``count`` bytes."""
        at = self.at
        self.at = after = at + count
        if after > len(self.data):
            raise DamagedError("its pickle ends within an opcode")
        if count > LONGEST_LINE:
            self._bytes -= count
            if self._bytes < 0:
                raise UnreadableError("its pickle holds too much text")
        return self.data[at:after]

    def line(self) -> bytes:
        """Read the argument of a text opcode."""
        end = self.data.find(b"\n", self.at, self.at + LONGEST_LINE)
        if end < 0:
            raise DamagedError("its pickle ends within a line, or the line is too long")
        line = self.data[self.at : end]
        self.at = end + 1
        return line

    def number(self, form: str, count: int) -> Any:
        """Read a binary number."""
        return struct.unpack(form, self.take(count))[0]

    def push(self, value: Any) -> None:
        """Push a value."""
        self.stack.append(value)

    def push_text(self, value: str | bytes) -> None:
        """Push a string that the present opcode spells out."""
        self.stack.append(text(value, self._opcode, self._opcode) if isinstance(value, str) else value)

    def pop(self) -> Any:
        """Pop a value."""
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        """Pop everything above the topmost mark."""
        values = self.stack
        self.stack = self._below.pop()
        return values

    def mark(self) -> None:
        """Set a mark."""
        self._steps -= CONTAINER_COST
        self._below.append(self.stack)
        self.stack = []

    def make(self, value: Any) -> None:
        """Push a new container."""
        self._steps -= CONTAINER_COST
        self.stack.append(value)

    def make_name(self, module: Any, name: Any) -> Name:
        """Note a global."""
        if not (isinstance(module, str) and isinstance(name, str)):
            raise UnreadableError("its pickle names a global by code")
        new = named(module, name)
        return self.names.setdefault(new.full, new)

    def put(self, index: int) -> None:
        """Remember the topmost value."""
        if self.quick:
            if index != self.next_put:
                raise NotQuickError
            self.next_put = index + 1
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> Any:
        """Push a value that was remembered, and return it."""
        value = self.memo[index] if index in self.memo else self.runs.get(index)
        if value is None and index not in self.memo:
            if self.quick:
                raise NotQuickError
            raise UnreadableError(f"its pickle holds {index}, no memo entry")
        if isinstance(value, str):
            source = value.source if isinstance(value, Text) else -1
            self.fetched.append((self._opcode, source))
            value = text(value, self._opcode, source)
        self.stack.append(value)
        return value

    def memoize(self) -> None:
        """Remember the topmost value under the next number."""
        self.put(self.next_put if self.quick else len(self.memo))

    def duplicate(self) -> None:
        """Push the topmost value again; of a string, no position stands for the two of them."""
        value = self.pop()
        if isinstance(value, Text):
            value = text(value, -1, -1)
        self.stack += [value, value]

    def frame(self) -> None:
        """Note a frame."""
        self.frames.append(self._opcode)
        self.take(8)

    def drop(self) -> None:
        """Pop a value, or an empty mark."""
        if self.stack:
            self.stack.pop()
        else:
            self.since_mark()

    def last(self, count: int) -> tuple[Any, ...]:
        """Pop ``count`` values."""
        return tuple(self.pop() for _ in range(count))[::-1]
