"""A file can hold any program, or be a bomb: nothing of it runs, and time and memory are bounded."""

from __future__ import annotations

import io
import json
import os
import pickle
import pickletools
import struct
import subprocess
import sys
import time
import zipfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ddpdoctor import BadTarget, checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")

SECONDS = 20  # for one file, however it is made; the start of an interpreter under load is in it
MEMORY = 1 << 30


@dataclass(frozen=True, slots=True)
class Good:
    """The bytes of whole checkpoints, written by the libraries that write them."""

    zip: bytes
    legacy: bytes
    safetensors: bytes


@pytest.fixture(scope="module")
def good() -> Good:
    """Write one small checkpoint in each format."""
    import torch
    from safetensors.torch import save

    state = {"module.weight": torch.arange(6.0).reshape(2, 3), "module.bias": torch.ones(3)}
    new, old = io.BytesIO(), io.BytesIO()
    torch.save({"model": state}, new)
    torch.save({"model": state}, old, _use_new_zipfile_serialization=False)
    return Good(new.getvalue(), old.getvalue(), save(state))


class Payload:
    """What calls a function when it is unpickled."""

    def __init__(self, function: Callable[..., object], *args: object) -> None:
        """Take the function and its arguments."""
        self.call = function, args

    def __reduce__(self) -> Any:
        """Tell pickle to call it."""
        return self.call


def archived(data: bytes) -> bytes:
    """Put a pickle where torch.save puts its own."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/data/0", bytes(16))
    return buffer.getvalue()


TENSOR = (  # a tensor of four numbers, as torch.save pickles it
    b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
    b"0X\x03\0\0\0cpuK\x04tQK\0K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"
)


def text(value: str) -> bytes:
    """Pickle a text, as protocol 2 does."""
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


MODEL = text("model") + b"}(" + text("module.weight") + TENSOR + b"u"


def beside(data: bytes) -> bytes:
    """Pickle a checkpoint that has a model, and this beside it."""
    return b"\x80\x02}(" + MODEL + text("x") + data + b"u."


def within(data: bytes) -> bytes:
    """Pickle a model with this, a key and its value, in its state dict."""
    return b"\x80\x02}(" + text("module.weight") + TENSOR + data + b"u."


SYSTEM = b"cos\nsystem\n"
EVIL: dict[str, Callable[[str], bytes]] = {
    "a call as value": lambda command: beside(SYSTEM + text(command) + b"\x85R"),
    "a call as key": lambda command: within(SYSTEM + text(command) + b"\x85R" + TENSOR),
    "a call that gives a name": lambda command: within(
        b"cbuiltins\ngetattr\n(cos\nsystem\n"
        + text("__name__")
        + b"tR"
        + TENSOR
        + text("module.y")
        + SYSTEM
        + text(command)
        + b"\x85R"
    ),
    "a call that is thrown away": lambda command: beside(SYSTEM + text(command) + b"\x85R0N"),
    "a call before all": lambda command: SYSTEM + text(command) + b"\x85R0" + beside(b"N")[2:],
    "a state that is a call": lambda command: beside(
        b"ccollections\nOrderedDict\n)R" + SYSTEM + text(command) + b"\x85Rb"
    ),
    "an import with consequences": lambda _: beside(b"cevil\nthing\n"),
    "a tensor of another maker": lambda command: within(text("module.y") + SYSTEM + text(command) + b"\x85R"),
    "an instance": lambda command: beside(b"(" + text(command) + b"ios\nsystem\n"),
    "an object": lambda command: beside(b"(" + SYSTEM + text(command) + b"o"),
}
BOMBS: dict[str, bytes] = {
    "a length beyond the file": beside(b"\x96" + struct.pack("<Q", 1 << 62)),
    "a text beyond the file": beside(b"X\xff\xff\xff\x7f"),
    "a key beyond the file": within(b"X\xff\xff\xff\xff"),
    "a memo index": beside(b"Nr\xff\xff\xff\xff"),
    "deep tuples": beside(b"N" + b"\x85" * 150_000),
    "deep lists": beside(b"]" * 300_000 + b"a" * 299_999),
    "deep dicts": beside((b"}" + text("k")) * 100_000 + b"N" + b"s" * 100_000),
    "deep state dicts": beside((b"}" + text("module.a") + TENSOR + b"s" + text("k")) * 3000 + b"N" + b"s" * 3000),
    "deep marks": beside(b"(" * 300_000 + b"t" * 300_000),
    "laughs": beside(b"]q\0" + b"".join(b"](" + bytes([104, n, 104, n]) + b"eq" + bytes([n + 1]) for n in range(200))),
    "a list in itself": beside(b"]q\0h\0a"),
    "a state dict in itself": b"\x80\x02}q\0(" + text("module.weight") + TENSOR + text("module.self") + b"h\0u.",
    "lists without end": beside(b"]" * 20_000_000),
    "one key, again and again": within(b"X\x08\0\0\0module.aq\0" + TENSOR + (b"h\0" + b"N") * 100_000),
    "a very long key": within(text("module." + "a" * 5_000_000) + TENSOR),
    "very many short keys": within(b"".join(text(f"module.{n}") + b"N" for n in range(50_000))),
    "one state dict at many places": beside(
        b"}q\0(" + text("module.weight") + TENSOR + b"u0(" + b"h\0" * 60_000 + b"t"
    ),
    "dots": within(text("module." * 500_000 + "a") + TENSOR),
    "an extension": beside(b"\x82\x01"),
    "an empty stack": b"\x80\x02R.",
    "no end": beside(b"N")[:-1],
}

IN_A_CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]),) * 2)
from ddpdoctor import BadTarget, checkpoint
outcomes = []
for path in sys.argv[3:]:
    for options in ({"output": path + ".new"}, {"in_place": True}):
        try:
            checkpoint.repair(path, **options)
            outcomes.append("done")
        except BadTarget as exc:
            assert "\\n" not in str(exc)
            assert len(str(exc)) < 2000, len(str(exc))
            outcomes.append(str(exc))
assert "torch" not in sys.modules
print("\\n".join(outcomes))
"""


def in_a_child(cwd: Path, *paths: Path, cpu: int = SECONDS) -> list[str]:
    """Repair files in a process of little memory; give what came of each way to do it."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CHILD, str(MEMORY), str(cpu), *paths],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(cwd)},
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert time.monotonic() - started < 4 * cpu
    return done.stdout.splitlines()


def test_nothing_in_a_file_runs(tmp_path: Path, good: Good) -> None:
    """No call, no import and no state of a pickle does anything, wherever in a file of any format the pickle is."""
    witness = tmp_path / "ran"
    command = f"touch {witness}"
    (tmp_path / "evil.py").write_text(f"open({str(witness)!r}, 'w').close()\nthing = 1\n")
    paths = []
    for number, make in enumerate(EVIL.values()):
        paths.append(tmp_path / f"{number}.pt")
        paths[-1].write_bytes(archived(make(command)))
        paths.append(tmp_path / f"{number}.pth")
        paths[-1].write_bytes(legacy_with(good.legacy, make(command)))
        paths.append(tmp_path / f"{number}.dcp")
        paths[-1].mkdir()
        (paths[-1] / ".metadata").write_bytes(make(command))
    for where in range(1, 5):
        paths.append(tmp_path / f"legacy{where}.pth")
        paths[-1].write_bytes(legacy_with(good.legacy, pickle.dumps(Payload(os.system, command), protocol=2), where))

    outcomes = in_a_child(tmp_path, *paths, cpu=60)

    assert not witness.exists()
    assert len(outcomes) == 2 * len(paths)
    pickle.loads(pickle.dumps(Payload(os.system, command), protocol=2))  # noqa: S301 - the payload is a real one
    assert witness.exists()


def legacy_with(data: bytes, changed: bytes, where: int = 3) -> bytes:
    """Put another pickle into a legacy file: 1 is the version, 2 the machine, 3 the object, 4 the list of keys."""
    file = io.BytesIO(data)
    ends = []
    for _ in range(5):
        deque(pickletools.genops(file), maxlen=0)
        ends.append(file.tell())
    return data[: ends[where - 1]] + changed + data[ends[where] :]


@pytest.mark.parametrize("name", [name for name in EVIL if name.startswith("a call as key")])
def test_a_key_that_is_computed_is_not_renamed(tmp_path: Path, name: str) -> None:
    """A state dict whose keys only running the pickle would tell is left alone."""
    path = tmp_path / "last.pt"
    path.write_bytes(data := archived(EVIL[name]("true")))

    for way in ({"in_place": True}, {"output": tmp_path / "new.pt"}):
        with pytest.raises(BadTarget, match=r"last\.pt"):
            checkpoint.repair(path, **way)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("last.pt", data)]


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_bounded_time_and_memory(tmp_path: Path, name: str) -> None:
    """Whatever a pickle declares or nests, the answer comes in seconds, in bounded memory: a line, or a repair."""
    path = tmp_path / "last.pt"
    path.write_bytes(archived(BOMBS[name]))

    outcomes = in_a_child(tmp_path, path)

    assert len(outcomes) == 2
    assert len({each == "done" for each in outcomes}) == 1, outcomes


def test_large_numbers_in_the_headers(tmp_path: Path, good: Good) -> None:
    """A length that a header declares is not allocated before it is seen to be there."""
    paths = []
    start, end = good.zip.index(b"PK\1\2"), good.zip.index(b"PK\5\6")
    for at in (*range(start, start + 46, 2), *range(end, end + 22, 2)):
        for width in (2, 4):
            paths.append(tmp_path / f"{at}-{width}.pt")
            paths[-1].write_bytes(good.zip[:at] + b"\xfe" * width + good.zip[at + width :])
    for length in (1 << 20, 1 << 26, 1 << 31, 1 << 40, 1 << 63):
        paths.append(tmp_path / f"{length}.safetensors")
        paths[-1].write_bytes(struct.pack("<Q", length) + good.safetensors[8:])
    for shape in ([1 << 62], [1 << 62, 1 << 62], [-1], [1.5], ["1"], [True], None):
        header = json.dumps({"module.a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}).encode()
        paths.append(tmp_path / f"{shape}.safetensors")
        paths[-1].write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    nested = b'{"module.a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    paths.append(tmp_path / "nested.safetensors")
    paths[-1].write_bytes(struct.pack("<Q", len(nested)) + nested)

    outcomes = in_a_child(tmp_path, *paths, cpu=60)

    assert len(outcomes) == 2 * len(paths)
    assert outcomes.count("done") * 2 < len(outcomes)
