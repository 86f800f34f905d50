"""Reads named tensors in one step each: torch.save spells all of them by the same forty opcodes.

Without it, 200,000 tensors take five seconds. It gives what the opcodes one by one give, or does nothing: a file that
numbers its memo in another way, or fetches what was passed over here, is interpreted again without it.
"""

from __future__ import annotations

import array
import functools
import re
import sys
from typing import Any

from ddpdoctor.checkpoint.machine import Machine, NotQuickError
from ddpdoctor.checkpoint.tensors import STORAGES
from ddpdoctor.checkpoint.values import Name, Tensor, Text, text

REBUILD = "torch._utils._rebuild_tensor_v2"
ORDERED = "collections.OrderedDict"
INTEGER = rb"(?:K.|M..|J.{4}|\x8a\x05.{5}|\x8a\x06.{6})"
GET = rb"(?:h.|j.{4})"
TUPLE = rb"(?:\)|((?:%(i)s\x85|%(i)s%(i)s\x86|%(i)s%(i)s%(i)s\x87|\((?:%(i)s){4,16}t))r(.{4}))" % {b"i": INTEGER}
TENSOR = (
    rb"(%(get)s\(\(%(get)s%(get)s)"  # the function, "storage", and the class of the storage
    rb"(?:X(.)\0\0\0([0-9]{1,9})r(.{4})|(%(get)s))"  # its key, spelled out or, when it is shared, fetched
    rb"(%(get)s)(%(int)s)tr(.{4})Q"  # where it was, and its number of elements
    rb"%(int)s%(tuple)s%(tuple)s[\x88\x89](%(get)s\)R)r(.{4})tr(.{4})Rr(.{4})"  # offset, size, stride, grad, hooks
) % {b"get": GET, b"int": INTEGER, b"tuple": TUPLE}
NAMED = re.compile(rb"X(.)\0\0\0(.{0,255}?)r(.{4})" + TENSOR, re.DOTALL)
NUMBER = re.compile(INTEGER, re.DOTALL)
GETTING = re.compile(GET, re.DOTALL)
STEPS = 40
MANY = 1 << 12  # tensors after which it is seen whether all is as it must be


def named_tensors(machine: Machine) -> None:
    """Push all names and tensors that come next, as long as they are spelled as usual.

    Raises:
        NotQuickError: the memo is numbered in another way.
    """
    while _some_tensors(machine) == MANY:
        pass


def _some_tensors(machine: Machine) -> int:
    memo, push, match_at = machine.memo, machine.stack.append, functools.partial(NAMED.match, machine.data)
    known: dict[tuple[bytes, ...], tuple[str, str] | None] = {}
    puts: list[bytes | None] = []
    at, taken = machine.at, 0
    while taken < MANY and (match := match_at(at)):
        (
            length, word, word_put, maker, key_length, key, key_put, shared, where, count, reference_put,
            size, size_put, _, stride_put, hooks, hooks_put, args_put, put,
        ) = match.groups()  # fmt: skip
        kinds = maker, where, hooks
        if kinds not in known:
            known[kinds] = _kinds(machine, *kinds)
        name = memo.get(_index(shared[1:])) if shared else str(key, "ascii")
        kind, tensor = known[kinds], _tensor(size, known[kinds])
        if (
            kind is None
            or tensor is None
            or length[0] != len(word)
            or (key and key_length[0] != len(key))
            or not isinstance(name, str)
            or not (label := _label(word, at))
        ):
            break
        puts += word_put, key_put, reference_put, size_put, stride_put, hooks_put, args_put, put
        memo[_index(word_put)] = label
        memo[_index(put)] = tensor
        if shared:
            machine.skipped.add(getattr(name, "source", -1))
        else:
            memo[_index(key_put)] = name
        push(label)
        push(tensor)
        machine.storages[name] = kind[0], name, _integer(count)
        at = match.end()
        taken += 1
    machine.at = at
    machine.spend(STEPS * taken)
    _see_numbers(machine, b"".join(filter(None, puts)))
    return taken


def _see_numbers(machine: Machine, puts: bytes) -> None:
    first = machine.next_put
    machine.next_put += len(puts) // 4
    numbers = array.array("I", range(first, machine.next_put))
    if sys.byteorder == "big":
        numbers.byteswap()
    if numbers.tobytes() != puts:
        raise NotQuickError


def _label(word: bytes, at: int) -> Text | None:
    try:
        return text(word.decode("utf-8", "surrogatepass"), at, at)
    except UnicodeDecodeError:
        return None


def _kinds(machine: Machine, maker: bytes, where: bytes, hooks: bytes) -> tuple[str, str] | None:
    """Give the class of the storage and its dtype, when all that is fetched is what torch fetches."""
    found: list[Any] = [machine.memo.get(_index(each[1:])) for each in GETTING.findall(maker)]
    found += [machine.memo.get(_index(where[1:])), machine.memo.get(_index(hooks[1:-2]))]
    match found:
        case Name() as call, Text() as word, Name() as kind, Text() as place, Name() as made if (
            call.full,
            word,
            made.full,
        ) == (REBUILD, "storage", ORDERED) and kind.name in STORAGES:
            machine.skipped.update((word.source, place.source))
            return kind.name, STORAGES[kind.name][0]
        case _:
            return None


def _index(number: bytes) -> int:
    return int.from_bytes(number, "little")


@functools.lru_cache(1024)
def _integer(opcode: bytes) -> int:
    skip = 2 if opcode[:1] == b"\x8a" else 1
    return int.from_bytes(opcode[skip:], "little", signed=opcode[:1] in b"J\x8a")


@functools.lru_cache(1024)
def _tensor(size: bytes | None, kind: tuple[str, str] | None) -> Tensor | None:
    shape = tuple(map(_integer, NUMBER.findall(size or b"")))
    return Tensor(shape, kind[1]) if kind and all(each >= 0 for each in shape) else None
