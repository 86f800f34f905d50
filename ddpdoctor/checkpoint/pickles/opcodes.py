"""What each opcode of the pickle protocols 0 to 5 does to the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpdoctor.checkpoint.pickles.containers import append, build, extended, pair, reduce, refer, set_items
from ddpdoctor.checkpoint.pickles.fast_tensors import named_tensors, versions
from ddpdoctor.checkpoint.pickles.pickle_vm import Data, Machine, NotQuickError
from ddpdoctor.checkpoint.pickles.values import Dict, Object, UnreadableError

LONGEST_NUMBER = 1000  # decimal digits; their conversion takes quadratic time


def interpret(
    data: Data, at: int = 0, *, quick: bool = True, placed: bool = True, again: Callable[[], Data] | None = None
) -> tuple[Any, Machine]:
    """Read the pickle that begins at a position; return its value, and the machine: what it met, and the end.

    ``quick`` reads tensors at once, by their usual sequence of opcodes; the value is the same. With ``placed``, each
    string knows where it stands, as a change of it asks for. The memory of data that can be had ``again`` is given back
    on the way.

    Raises:
        DamagedError: the data end within the pickle.
        UnreadableError: it is no pickle, or one that is not understood.
    """
    machine = Machine(data, at, quick=quick, placed=placed)
    machine.releases = again is not None
    try:
        value = machine.run(HANDLERS)
    except NotQuickError:
        return interpret(again() if again else data, at, quick=False, placed=placed)
    except UnreadableError as exc:
        exc.names = tuple(machine.names)
        raise
    machine.memo.clear()
    machine.runs.clear()
    if not placed:
        machine.data = b""  # megabytes that nobody asks for any more
    return value, machine


def _digits(line: bytes) -> int:
    if len(line) > LONGEST_NUMBER:
        raise UnreadableError("its pickle holds a number of too many digits")
    return int(line.rstrip(b"L"))


def _decimal(machine: Machine) -> None:
    line = machine.line()
    machine.push({b"00": False, b"01": True}.get(line) if line in {b"00", b"01"} else _digits(line))


def _old_text(data: bytes) -> str | bytes:
    """Decode a string of Python 2 as torch.load does; what is no UTF-8 stays bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _quoted(machine: Machine) -> None:
    line = machine.line().strip()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in {b"'", b'"'}:  # noqa: PLR2004
        raise UnreadableError("its pickle holds a string without quotes")
    if b"\\" in line:
        raise UnreadableError("its pickle holds an escaped string of protocol 0")
    machine.push_text(_old_text(line[1:-1]))


def _text(machine: Machine, data: bytes) -> None:
    machine.push_text(data.decode("utf-8", "surrogatepass"))


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _size(machine: Machine, form: str, count: int) -> bytes:
    length = machine.number(form, count)
    if length < 0:
        raise UnreadableError("its pickle declares a negative length")
    return machine.take(length)


def _instance(machine: Machine) -> None:
    name = machine.make_name(machine.line().decode(), machine.line().decode())
    machine.make(Object(name, tuple(machine.since_mark())))


def _object(machine: Machine) -> None:
    maker, *args = machine.since_mark()
    machine.make(Object(maker, tuple(args)))


def _dict(machine: Machine) -> None:
    values = machine.since_mark()
    machine.make(Dict())
    set_items(machine, values)


def _stack_global(machine: Machine) -> None:
    name, module = machine.pop(), machine.pop()
    machine.push(machine.make_name(module, name))


def _refuse(what: str) -> Callable[[Machine], None]:
    def refuse(_: Machine) -> None:
        raise UnreadableError(f"its pickle needs {what}")

    return refuse


def _unknown(machine: Machine) -> None:
    code = machine.data[machine.at - 1 : machine.at]
    raise UnreadableError(f"its pickle holds {code!r}, no opcode")


def _put(machine: Machine, index: int) -> None:
    """Remember a value; behind the one of a tensor, more of them can come."""
    machine.put(index)
    if machine.quick and isinstance(machine.stack[-1], Object):
        named_tensors(machine)


def _set_item(machine: Machine) -> None:
    """Put an item into a dict; behind the version of a layer, more of them can come."""
    set_items(machine, pair(machine))
    if machine.quick:
        versions(machine)


OPCODES: dict[bytes, Callable[[Machine], object]] = {
    b"\x80": lambda m: m.take(1),
    b"\x95": Machine.frame,
    b"(": Machine.mark,
    b"0": Machine.drop,
    b"1": lambda m: m.since_mark(),
    b"2": Machine.duplicate,
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),  # noqa: FBT003
    b"\x89": lambda m: m.push(False),  # noqa: FBT003
    b"I": _decimal,
    b"L": lambda m: m.push(_digits(m.line())),
    b"F": lambda m: m.push(float(m.line())),
    b"G": lambda m: m.push(m.number(">d", 8)),
    b"J": lambda m: m.push(m.number("<i", 4)),
    b"K": lambda m: m.push(m.take(1)[0]),
    b"M": lambda m: m.push(m.number("<H", 2)),
    b"\x8a": lambda m: m.push(_signed(_size(m, "<B", 1))),
    b"\x8b": lambda m: m.push(_signed(_size(m, "<i", 4))),
    b"S": _quoted,
    b"T": lambda m: m.push_text(_old_text(_size(m, "<i", 4))),
    b"U": lambda m: m.push_text(_old_text(_size(m, "<B", 1))),
    b"V": lambda m: m.push_text(m.line().decode("raw-unicode-escape")),
    b"X": lambda m: _text(m, _size(m, "<I", 4)),
    b"\x8c": lambda m: _text(m, _size(m, "<B", 1)),
    b"\x8d": lambda m: _text(m, _size(m, "<Q", 8)),
    b"B": lambda m: m.push(_size(m, "<I", 4)),
    b"C": lambda m: m.push(_size(m, "<B", 1)),
    b"\x8e": lambda m: m.push(_size(m, "<Q", 8)),
    b"\x96": lambda m: m.push(_size(m, "<Q", 8)),
    b")": lambda m: m.push(()),
    b"t": lambda m: m.make(tuple(m.since_mark())),
    b"\x85": lambda m: m.make(m.last(1)),
    b"\x86": lambda m: m.make(m.last(2)),
    b"\x87": lambda m: m.make(m.last(3)),
    b"]": lambda m: m.make([]),
    b"l": lambda m: m.make(m.since_mark()),
    b"a": lambda m: append(m, [m.pop()]),
    b"e": lambda m: append(m, m.since_mark()),
    b"}": lambda m: m.make(Dict()),
    b"d": _dict,
    b"s": _set_item,
    b"u": lambda m: set_items(m, m.since_mark()),
    b"\x8f": lambda m: m.make(Object(None, ())),
    b"\x90": lambda m: append(m, m.since_mark()),
    b"\x91": lambda m: m.make(Object(None, (), items=m.since_mark())),
    b"c": lambda m: m.push(m.make_name(m.line().decode(), m.line().decode())),
    b"\x93": _stack_global,
    b"R": reduce,
    b"\x81": reduce,
    b"\x92": extended,
    b"i": _instance,
    b"o": _object,
    b"b": build,
    b"P": lambda m: refer(m, m.line().decode()),
    b"Q": lambda m: refer(m, m.pop()),
    b"p": lambda m: m.put(_digits(m.line())),
    b"q": lambda m: m.put(m.take(1)[0]),
    b"r": lambda m: _put(m, m.number("<I", 4)),
    b"\x94": Machine.memoize,
    b"g": lambda m: m.get(_digits(m.line())),
    b"h": lambda m: m.get(m.take(1)[0]),
    b"j": lambda m: m.get(m.number("<I", 4)),
    b"\x82": _refuse("the registry of extensions"),
    b"\x83": _refuse("the registry of extensions"),
    b"\x84": _refuse("the registry of extensions"),
    b"\x97": _refuse("a buffer outside of it"),
    b"\x98": _refuse("a buffer outside of it"),
}
HANDLERS = tuple(OPCODES.get(bytes([code]), _unknown) for code in range(256))
