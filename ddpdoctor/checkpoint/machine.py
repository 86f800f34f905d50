"""The machine that a pickle is a program for, with inert values in place of whatever the program would make.

Everything is bounded: the number of steps, the containers among them, the bytes of text. A declared length is
compared with what the file holds before anything is allocated, and nothing recurses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from ddpdoctor.checkpoint.values import DamagedError, Dict, Name, Object, Reference, UnreadableError, named

MOST_STEPS = 20_000_000  # 200,000 tensors take 12 million
CONTAINER_COST = 4  # steps that a new container counts in addition: it takes memory
MOST_BYTES = 1 << 28  # of strings; inline arrays of training states are of this kind
LONGEST_LINE = 1 << 16


class Machine:
    """Reads one pickle from ``file``, which holds ``size`` bytes, and leaves the file behind its end.

    ``names`` and ``references`` list the globals and the storages that were met, in order.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        """Prepare to read from where the file stands."""
        self.names: dict[str, Name] = {}
        self.references: list[Reference] = []
        self._file = file
        self._size = size
        self._steps = MOST_STEPS
        self._bytes = MOST_BYTES
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self, handlers: Mapping[bytes, Callable[[Machine], object]]) -> Any:
        """Interpret up to the STOP opcode and give the value; ``handlers`` say what each opcode does.

        Raises:
            DamagedError: the file ends within the pickle.
            UnreadableError: it is no pickle, or one that is not understood.
        """
        read = self._file.read
        try:
            while True:
                code = read(1)
                if code == b".":
                    return self._stack.pop()
                self._steps -= 1
                if self._steps < 0:
                    raise UnreadableError("its pickle takes too many steps")
                handlers[code](self)
        except KeyError as exc:
            if exc.args[0] == b"":
                raise DamagedError("its pickle ends before its STOP opcode") from None
            raise UnreadableError(f"its pickle holds {exc.args[0]!r}, no opcode or no memo entry") from None
        except IndexError:
            raise UnreadableError("its pickle takes from an empty stack") from None
        except (ValueError, TypeError, OverflowError) as exc:
            raise UnreadableError(f"its pickle is malformed: {exc}") from None

    def take(self, count: int) -> bytes:
        """Read exactly ``count`` bytes; the length is checked before anything is allocated."""
        if count > LONGEST_LINE:
            if count > self._size - self._file.tell():
                raise DamagedError(f"its pickle declares {count} bytes, more than the file holds")
            self._bytes -= count
            if self._bytes < 0:
                raise UnreadableError("its pickle holds too much text")
        data = self._file.read(count)
        if len(data) != count:
            raise DamagedError("its pickle ends within an opcode")
        return data

    def line(self) -> bytes:
        """Read the argument of a text opcode."""
        data = self._file.readline(LONGEST_LINE)
        if not data.endswith(b"\n"):
            raise DamagedError("its pickle ends within a line, or the line is too long")
        return data[:-1]

    def number(self, form: str, count: int) -> Any:
        """Read a binary number."""
        return struct.unpack(form, self.take(count))[0]

    def push(self, value: Any) -> None:
        """Push a value."""
        self._stack.append(value)

    def pop(self) -> Any:
        """Pop a value."""
        return self._stack.pop()

    def since_mark(self) -> list[Any]:
        """Pop everything above the topmost mark."""
        values = self._stack
        self._stack = self._below.pop()
        return values

    def mark(self) -> None:
        """Set a mark."""
        self._steps -= CONTAINER_COST
        self._below.append(self._stack)
        self._stack = []

    def make(self, value: Any) -> None:
        """Push a new container."""
        self._steps -= CONTAINER_COST
        self._stack.append(value)

    def make_name(self, module: Any, name: Any) -> Name:
        """Note a global."""
        if not (isinstance(module, str) and isinstance(name, str)):
            raise UnreadableError("its pickle names a global by code")
        new = named(module, name)
        return self.names.setdefault(new.full, new)

    def refer(self, target: Any) -> None:
        """Push a persistent id."""
        self.make(Reference(target))
        self.references.append(self._stack[-1])

    def reduce(self) -> None:
        """Note a call."""
        args = self.pop()
        self.make(Object(self.pop(), args))

    def extended(self) -> None:
        """Note a call with keyword arguments."""
        keywords, args, maker = self.pop(), self.pop(), self.pop()
        self.make(Object(maker, (args, keywords)))

    def build(self) -> None:
        """Note the state of an object."""
        state = self.pop()
        if isinstance(target := self._stack[-1], Object):
            target.state = state
        elif not isinstance(target, Reference):
            raise UnreadableError("its pickle sets the state of what is no object")

    def append(self, values: list[Any]) -> None:
        """Put values at the end of a list, or of an object that is one."""
        target = self._stack[-1]
        if isinstance(target, (list, Object)):
            (target if isinstance(target, list) else target.items).extend(values)
        else:
            raise UnreadableError("its pickle appends to what is no list")

    def set_items(self, values: list[Any]) -> None:
        """Put items into a dict, or into an object that is one."""
        target = self._stack[-1]
        if not isinstance(target, (Dict, Object)) or len(values) % 2:
            raise UnreadableError("its pickle sets the items of what is no dict")
        self._steps -= len(values)
        target.pairs.extend(zip(values[::2], values[1::2], strict=True))

    def pair(self) -> list[Any]:
        """Pop a key and its value."""
        value = self.pop()
        return [self.pop(), value]

    def put(self, index: int) -> None:
        """Remember the topmost value."""
        self._memo[index] = self._stack[-1]

    def get(self, index: int) -> None:
        """Push a value that was remembered."""
        self._stack.append(self._memo[index])

    def memoize(self) -> None:
        """Remember the topmost value under the next number."""
        self.put(len(self._memo))

    def drop(self) -> None:
        """Pop a value, or an empty mark."""
        if self._stack:
            self._stack.pop()
        else:
            self.since_mark()

    def last(self, count: int) -> tuple[Any, ...]:
        """Pop ``count`` values."""
        return tuple(self.pop() for _ in range(count))[::-1]
