"""The reader of checkpoints tells what torch.load would give; nothing in a file makes it run, hang or swell."""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import resource
import subprocess
import sys
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from ddpdoctor.checkpoint import CheckpointFile, Format, inspect
from ddpdoctor.checkpoint.formats import archive, archive_record
from ddpdoctor.checkpoint.formats.torchfile import Pickled
from ddpdoctor.checkpoint.pickles.values import DamagedError
from ddpdoctor.checkpoint.reader import opened
from ddpdoctor.facets import BadTarget

MAGIC = 0x1950A86A20F9469CFC6C
FAST = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def saved(path: Path, value: Any, *, legacy: bool = False) -> CheckpointFile:
    """Save by torch, and look."""
    import torch

    torch.save(value, path, _use_new_zipfile_serialization=not legacy)
    return inspect(path)


def archived(path: Path, data: bytes) -> CheckpointFile:
    """Put a pickle where torch.save puts its own, and look."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")
    return inspect(path)


def tensors_in(value: Any, location: tuple[str | int, ...] = ()) -> dict[Any, dict[str, tuple[Any, str]]]:
    """List the state dicts of what torch.load gave, as the reader should tell them."""
    import torch

    found = {}
    if isinstance(value, dict):
        tensors = {key: part for key, part in value.items() if isinstance(part, torch.Tensor)}
        for key, part in value.items():
            found.update(tensors_in(part, (*location, key)))
        weights = [key for key, part in tensors.items() if not is_no_weight(key, part)]
        half = len(tensors) * 2 >= len(value)
        if any("." in key for key in weights) or (weights and half and not found):
            found = {
                location: {key: (tuple(each.shape), str(each.dtype)[6:]) for key, each in tensors.items()},
                **found,
            }
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        for index, part in enumerate(value):
            found.update(tensors_in(part, (*location, index)))
    return found


def told(file: CheckpointFile) -> dict[Any, dict[str, tuple[Any, str]]]:
    """Return what the reader found in the form of tensors_in."""
    return {
        each.location: {entry.key: (entry.shape, entry.dtype) for entry in each.entries} for each in file.state_dicts
    }


DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool", "complex64")
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=0, max_size=12)
LEAVES = st.one_of(
    st.builds(
        lambda shape, dtype: ("tensor", shape, dtype), st.lists(st.integers(0, 3), max_size=3), st.sampled_from(DTYPES)
    ),
    st.none(),
    st.integers(),
    st.floats(allow_nan=False),
    KEYS,
    st.binary(max_size=20),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(KEYS, inner, max_size=5),
        st.dictionaries(KEYS, LEAVES, max_size=5).map(OrderedDict),
        st.lists(inner, max_size=4),
        st.tuples(inner, inner).map(lambda pair: ["pair", *pair]),
    ),
    max_leaves=25,
)


def grown(tree: Any) -> Any:
    """Turn descriptions of tensors into tensors."""
    import torch

    if isinstance(tree, tuple):
        return torch.zeros(tree[1], dtype=getattr(torch, tree[2]))
    if isinstance(tree, dict):
        return type(tree)((key, grown(part)) for key, part in tree.items())
    return [grown(part) for part in tree] if isinstance(tree, list) else tree


@FAST
@given(tree=TREES, legacy=st.booleans())
def test_it_finds_what_torch_load_gives(tmp_path: Path, tree: Any, legacy: bool) -> None:  # noqa: FBT001
    """Keys, shapes, dtypes and places of all state dicts of any nested value are those that torch.load gives."""
    import torch

    value = grown(tree)
    file = saved(tmp_path / "last.pt", value, legacy=legacy)

    assert (file.damage, file.opaque) == ("", "")
    assert told(file) == tensors_in(torch.load(tmp_path / "last.pt", weights_only=False))


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])  # of protocol 0, torch.load reads no tensors
@pytest.mark.parametrize("legacy", [False, True])
def test_it_reads_every_protocol(tmp_path: Path, protocol: int, legacy: bool) -> None:  # noqa: FBT001
    """The pickle protocol does not matter."""
    import torch

    torch.save(
        {"état": {"a.weight": torch.zeros(2, 3)}, "n": [1, -(2**70), 2.5, None, True]},
        tmp_path / "a.pt",
        pickle_protocol=protocol,
        _use_new_zipfile_serialization=not legacy,
    )

    assert told(inspect(tmp_path / "a.pt")) == {("état",): {"a.weight": ((2, 3), "float32")}}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:torch.quantize_per_tensor")
def test_it_reads_every_kind_of_tensor(tmp_path: Path) -> None:
    """Parameters, buffers, views, sparse, quantised, meta tensors and those with attributes tell shape and dtype."""
    import torch

    with_attribute = torch.nn.Parameter(torch.zeros(4))
    with_attribute.note = 1  # type: ignore[attr-defined]
    state = {
        "parameter": torch.nn.Parameter(torch.zeros(2, 3)),
        "attribute": with_attribute,
        "view": torch.zeros(4, 4)[1:3].t(),
        "sparse": torch.eye(3).to_sparse(),
        "csr": torch.eye(3, dtype=torch.float64).to_sparse_csr(),
        "meta": torch.zeros(5, 1, device="meta", dtype=torch.float16),
        "quantised": torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8),
        "float8": torch.zeros(3, dtype=torch.float8_e4m3fn),
        "conjugate": torch.zeros(2, dtype=torch.complex64).conj(),
    }

    file = saved(tmp_path / "a.pt", state)

    assert {entry.key: (entry.shape, entry.dtype) for entry in file.state_dicts[0].entries} == {
        key: (tuple(value.shape), str(value.dtype)[6:]) for key, value in state.items()
    }


def is_no_weight(key: str, part: Any) -> bool:
    """Recognise measures, scores by the names of files, and states of random generators."""
    if not part.shape:
        return "." not in key or "/" in key or "\\" in key
    return "." not in key and str(part.dtype) == "torch.uint8" and len(part.shape) == 1


def test_it_sees_a_training_state(tmp_path: Path) -> None:
    """Weights, metadata and globals are told; the optimizer's tensors are no state dict; the names are not imported."""
    import numpy as np
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.zeros(3, 2)).sum().backward()
    optimizer.step()
    file = saved(
        tmp_path / "a.pt",
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "nets": [model[0].state_dict(), {"ema": model[1].state_dict()}],
            "args": argparse.Namespace(lr=1),
            "best": np.float64(1),
            "rng": torch.get_rng_state(),
            "epoch": 3,
        },
    )

    assert [each.location for each in file.state_dicts] == [("model",), ("nets", 0), ("nets", 1, "ema")]
    assert file.state_dicts[0].metadata == ()  # it has some; a look keeps none of them
    assert {"argparse.Namespace", "numpy.dtype", "torch.FloatStorage"} <= set(file.globals)
    assert [(item.key, item.kind) for item in file.items if item.key != "best"] == [
        ("model", "dict of 7"),
        ("optimizer", "dict of 2"),
        ("nets", "list of 2"),
        ("args", "argparse.Namespace"),
        ("rng", "tensor"),
        ("epoch", "int"),
    ]


@pytest.mark.parametrize("legacy", [False, True])
def test_it_sees_a_pickled_module(tmp_path: Path, legacy: bool) -> None:  # noqa: FBT001
    """A module saved whole is recognised, at the root and in a training state."""
    import torch

    whole = saved(tmp_path / "a.pt", torch.nn.Linear(1, 1), legacy=legacy)
    inner = saved(tmp_path / "b.pt", {"model": torch.nn.Linear(1, 1)}, legacy=legacy)

    assert [each.location for each in whole.modules] == [()]
    assert [(each.location, each.kind) for each in inner.modules] == [(("model",), "torch.nn.modules.linear.Linear")]


def test_an_ordered_dict_of_python_2_is_a_state_dict(tmp_path: Path) -> None:
    """Python 2 pickled an OrderedDict as a call with a list of pairs, and knew other names of modules."""
    import torch

    class Old(OrderedDict[str, Any]):
        """An OrderedDict that pickles as Python 2's did."""

        def __reduce__(self) -> Any:
            return OrderedDict, ([[key, value] for key, value in self.items()],)

    file = saved(tmp_path / "a.pt", Old(weight=torch.zeros(2)))

    assert told(file) == {(): {"weight": ((2,), "float32")}}
    assert archived(tmp_path / "b.pt", b"\x80\x02c__builtin__\neval\n.").globals == ("builtins.eval",)


def test_it_recognises_safetensors(tmp_path: Path) -> None:
    """A header is read, and a file that ends before its tensors do is broken."""
    header = json.dumps(
        {"__metadata__": {"format": "pt"}, "a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
    )
    data = len(header).to_bytes(8, "little") + header.encode()
    (tmp_path / "a.safetensors").write_bytes(data + b"\0" * 4)
    (tmp_path / "b.safetensors").write_bytes(data + b"\0" * 3)

    whole, cut = inspect(tmp_path / "a.safetensors"), inspect(tmp_path / "b.safetensors")

    assert told(whole) == {(): {"a": ((2,), "bfloat16")}}
    assert (whole.format, whole.damage) == (Format.SAFETENSORS, "")
    assert "its tensors end at byte" in cut.damage


def test_it_recognises_other_archives_of_torch(tmp_path: Path) -> None:
    """TorchScript and torch.export archives are not taken for state dicts, nor for broken files."""
    import torch

    buffer = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", b"x")
    exported = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
    torch.export.save(exported, buffer)
    (tmp_path / "a.pt2").write_bytes(buffer.getvalue())
    with zipfile.ZipFile(tmp_path / "script.pt", "w") as archive:
        for name in ("data.pkl", "constants.pkl", "code/__torch__.py"):
            archive.writestr(f"script/{name}", b"x")

    kinds = [inspect(tmp_path / name).format for name in ("a.npz", "a.pt2", "script.pt")]
    assert kinds == [Format.ZIP, Format.EXPORT, Format.TORCHSCRIPT]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_it_recognises_a_distributed_checkpoint(tmp_path: Path) -> None:
    """A directory that torch.distributed.checkpoint wrote is one; another stands for the one checkpoint in it."""
    import torch
    from torch.distributed.checkpoint.state_dict_saver import save

    save({"weight": torch.zeros(2)}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    plain = tmp_path / "plain"
    plain.mkdir()
    torch.save({"weight": torch.zeros(2)}, plain / "last.pt")
    torch.save({"state": {}, "param_groups": []}, plain / "optimizer.pt")

    assert inspect(tmp_path / "dcp").format is Format.DCP
    assert inspect(plain).path == str(plain / "last.pt")
    torch.save({"weight": torch.zeros(2)}, plain / "best.pt")
    with pytest.raises(BadTarget, match=r"is a directory .* name one of its files: best\.pt, last\.pt"):
        inspect(plain)


@pytest.mark.parametrize(
    ("contents", "kind"),
    [
        (b"", Format.EMPTY),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", Format.LFS),
        (b"\n <!DOCTYPE html><html><body>Sign in</body></html>", Format.HTML),
        (b"Repository not found\n", Format.TEXT),
        (pickle.dumps({"a": 1}), Format.PICKLE),
        (b"\x89HDF\r\n\x1a\n" + b"\x00\x01" * 40, Format.OTHER),
        (b"\xff", Format.OTHER),
        (b"\x80", Format.OTHER),
    ],
)
def test_it_tells_what_is_no_checkpoint(tmp_path: Path, contents: bytes, kind: Format) -> None:
    """A page, a pointer and the like are told apart, and are not called damaged."""
    (tmp_path / "last.pt").write_bytes(contents)

    file = inspect(tmp_path / "last.pt")

    assert (file.format, file.damage) == (kind, "")
    assert not file.format.loads


def test_a_file_that_cannot_be_had_is_the_users_mistake(tmp_path: Path) -> None:
    """A path without a file, and one that is no path, give one clear line."""
    for path in (tmp_path / "none.pt", "a\0b", tmp_path / ("x" * 300)):
        with pytest.raises(BadTarget) as caught:
            inspect(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_cut_file_is_broken_wherever_it_was_cut(tmp_path: Path, legacy: bool) -> None:  # noqa: FBT001
    """However little is missing, the file is called damaged, and never whole or something else."""
    whole = saved(tmp_path / "a.pt", {"weight": __import__("torch").zeros(40)}, legacy=legacy)
    data = (tmp_path / "a.pt").read_bytes()

    assert whole.damage == ""
    for length in range(20, len(data), 7):
        (tmp_path / "b.pt").write_bytes(data[:length])
        assert inspect(tmp_path / "b.pt").damage, length


def test_a_flipped_bit_in_the_names_is_seen(tmp_path: Path) -> None:
    """A wrong CRC-32 of the pickle, which torch.load ignores and so loads a wrong name, makes the file a broken one."""
    import torch

    saved(tmp_path / "a.pt", {"conv.weight": torch.zeros(1)})
    data = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "b.pt").write_bytes(data.replace(b"conv.weight", b"conv.veight"))

    assert list(torch.load(tmp_path / "b.pt")) == ["conv.veight"]
    assert "CRC-32" in inspect(tmp_path / "b.pt").damage


def test_a_file_without_crc_is_whole(tmp_path: Path) -> None:
    """When torch is told not to compute the CRC-32 it writes zeros, and the file is whole all the same."""
    import torch

    torch.serialization.set_crc32_options(False)
    try:
        assert saved(tmp_path / "a.pt", {"weight": torch.zeros(1)}).damage == ""
    finally:
        torch.serialization.set_crc32_options(True)


def test_a_storage_that_is_not_there_is_seen(tmp_path: Path) -> None:
    """An archive that lacks the data of a tensor is broken, although its directory is in order."""
    import torch

    saved(tmp_path / "a.pt", {"weight": torch.zeros(1), "bias": torch.zeros(1)})
    with zipfile.ZipFile(tmp_path / "a.pt") as old, zipfile.ZipFile(tmp_path / "b.pt", "w") as new:
        for name in old.namelist():
            if not name.endswith("data/1"):
                new.writestr(name, old.read(name))

    assert "data/1" in inspect(tmp_path / "b.pt").damage


class Payload:
    """What calls a function when it is unpickled."""

    def __init__(self, function: Callable[..., object], *args: object) -> None:
        """Take the function and its arguments."""
        self.call = function, args

    def __reduce__(self) -> Any:
        """Tell pickle to call it."""
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_does_nothing(tmp_path: Path, protocol: int) -> None:
    """Neither a command nor an eval in the pickle is run; their names are told."""
    witness = tmp_path / "ran"
    data = pickle.dumps(
        [Payload(os.system, f"touch {witness}"), Payload(eval, f"open({str(witness)!r}, 'w').close()")],
        protocol=protocol,
    )

    file = archived(tmp_path / "a.pt", data)

    assert not witness.exists()
    assert {"builtins.eval", f"{os.system.__module__}.system"} <= set(file.globals)
    pickle.loads(data)  # noqa: S301 - the payload is a real one
    assert witness.exists()


BOMBS = {
    "a length beyond the file": b"\x80\x04\x96" + (1 << 62).to_bytes(8, "little") + b".",
    "a text beyond the file": b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little") + b".",
    "a memo index": b"\x80\x04Nr\xff\xff\xff\xff.",
    "a negative length": b"T\xff\xff\xff\xff.",
    "deep tuples": b"\x80\x02N" + b"\x85" * 3_000_000 + b".",
    "deep lists": b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b".",
    "deep dicts": b"\x80\x02" + b"}N" * 300_000 + b"Ns" + b"s" * 299_999 + b".",
    "deep marks": b"\x80\x02" + b"(" * 2_000_000 + b"t" * 2_000_000 + b".",
    "laughs": b"\x80\x02]q\x00"
    + b"".join(b"](" + b"h" + bytes([n]) + b"h" + bytes([n]) + b"eq" + bytes([n + 1]) for n in range(200))
    + b".",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "a dict in itself": b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.",
    "empty dicts without end": b"\x80\x02" + b"}" * 30_000_000 + b".",
    "keys that hash alike": b"\x80\x02}("
    + b"".join(b"\x8a\x0a" + (k * (2**61 - 1)).to_bytes(10, "little") + b"N" for k in range(200_000))
    + b"u.",
    "a long number": b"I" + b"9" * 60_000 + b"\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "an outside buffer": b"\x80\x05\x97.",
    "a computed name": b"\x80\x04K\x01K\x02\x93.",
    "an empty stack": b"\x80\x02R.",
    "nested sparse": b"\x80\x02ctorch._utils\n_rebuild_sparse_tensor\nq\x00NN\x86q\x01"
    + b"".join(b"h\x00N(" + b"h\x01" * 5 + b"t\x86Rq\x01" for _ in range(60))
    + b".",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_read_in_bounded_time_and_memory(tmp_path: Path, name: str) -> None:
    """Whatever a pickle declares, the reader ends in seconds, in bounded memory, with a description."""
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("archive/data.pkl", BOMBS[name])
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "a.pt")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime

    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 30  # of the processor: the machine is busy


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from ddpdoctor.checkpoint import inspect
file = inspect(sys.argv[1])
assert "torch" not in sys.modules
print(file.damage or file.opaque)
"""


def test_looking_imports_no_torch(tmp_path: Path) -> None:
    """A file is read on a machine without torch, and nothing that its pickle names is imported."""
    import torch

    torch.save({"model": torch.nn.Linear(1, 1).state_dict(), "args": argparse.Namespace()}, tmp_path / "a.pt")
    code = (
        "import sys; from ddpdoctor.checkpoint import inspect; file = inspect(sys.argv[1]); "
        "print(len(file.state_dicts), *sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a.pt"], capture_output=True, text=True, check=True)

    count, *modules = done.stdout.split()
    assert count == "1"
    assert {"torch", "numpy", "argparse"} & set(modules) == set()


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Return whole files of each format."""
    import torch

    path = tmp_path_factory.mktemp("originals") / "a.pt"
    value = {"model": torch.nn.BatchNorm1d(2).state_dict(), "args": argparse.Namespace(a=1), "n": [1.5, "x", None]}
    files = []
    for options in ({}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 5}):
        torch.save(value, path, **options)
        files.append(path.read_bytes())
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return [*files, len(header).to_bytes(8, "little") + header + b"\0" * 4]


@settings(FAST, max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_mutated_files_never_escape(tmp_path: Path, originals: list[bytes], data: st.DataObject) -> None:
    """Any bytes give a description: no exception, no long wait."""
    mutated = bytearray(data.draw(st.sampled_from(originals)))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        mutated[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    (tmp_path / "a.pt").write_bytes(mutated)
    started = time.process_time()

    assert isinstance(inspect(tmp_path / "a.pt"), CheckpointFile)
    assert time.process_time() - started < 5


@settings(FAST, max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_mutated_pickles_never_escape(tmp_path: Path, originals: list[bytes], data: st.DataObject) -> None:
    """A pickle of any bytes, with a CRC that is right, gives a description: no exception, no long wait."""
    with zipfile.ZipFile(io.BytesIO(originals[data.draw(st.sampled_from([0, 2]))])) as archive:
        mutated = bytearray(archive.read("a/data.pkl"))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        mutated[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    started = time.process_time()

    assert isinstance(archived(tmp_path / "a.pt", bytes(mutated)), CheckpointFile)
    assert time.process_time() - started < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20


def test_two_hundred_thousand_tensors_are_within_the_bounds(tmp_path: Path) -> None:
    """The bounds do not refuse what people really have: a tenth of it takes a tenth of the steps."""
    import torch

    from ddpdoctor.checkpoint.pickles.opcodes import interpret
    from ddpdoctor.checkpoint.pickles.pickle_vm import MOST_STEPS

    torch.save({f"layers.{index}.weight": torch.zeros(1) for index in range(2000)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        data = archive.read("a/data.pkl")

    for quick in (False, True):
        _, machine = interpret(data, quick=quick)
        assert (MOST_STEPS - machine._steps) * 100 < MOST_STEPS


def _told_by(data: bytes, *, quick: bool) -> Any:
    """Return what is made of a pickle: state dicts with the places of their names, storages, fetches; or the error."""
    from ddpdoctor.checkpoint.pickles.opcodes import interpret
    from ddpdoctor.checkpoint.pickles.values import UnreadableError
    from ddpdoctor.checkpoint.survey import survey

    try:
        root, machine = interpret(data, quick=quick)
        found = survey(root)
    except UnreadableError as exc:
        return type(exc)
    words: Any = [(*each.keys, *(each.metadata or ())) for each in found.state_dicts]
    names = [[(word, word.at) for word in each] for each in words]
    return found, names, machine.storages, machine.at, set(machine.names)


@FAST
@given(tree=TREES, data=st.data())
def test_the_shortcut_gives_what_the_opcodes_give(tmp_path: Path, tree: Any, data: st.DataObject) -> None:
    """Whole or mutated, a pickle is read by the shortcut as without it: many tensors, shared storages, odd shapes."""
    import torch

    shared = torch.zeros(6)
    value = [grown(tree), {f"layer.{index}": torch.zeros(index % 3, 2) for index in range(60)}]
    value += [{f"tied.{index}": shared[index % 6 :] for index in range(40)}, value[-1]]
    versioned: Any = OrderedDict(value[1])
    versioned._metadata = OrderedDict((f"layer.{index}", {"version": index % 3}) for index in range(60))
    value += [versioned, list(versioned._metadata)]
    torch.save(value, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        pickled = bytearray(archive.read("a/data.pkl"))

    assert _told_by(bytes(pickled), quick=True) == _told_by(bytes(pickled), quick=False)
    for _ in range(20):
        at = data.draw(st.integers(0, len(pickled) - 1))
        kept, pickled[at] = pickled[at], data.draw(st.integers(0, 255))
        assert _told_by(bytes(pickled), quick=True) == _told_by(bytes(pickled), quick=False)
        pickled[at] = kept


@pytest.mark.parametrize("again", [False, True])
def test_a_large_pickle_is_given_back_as_it_is_read(tmp_path: Path, *, again: bool) -> None:
    """What is read again, as a path of a layer is fetched that nobody kept, is read from the file."""
    import torch

    shared = torch.zeros(1)
    versioned: Any = OrderedDict((f"{'layers.' * 14}{index}.weight", shared[:]) for index in range(30_000))
    versioned._metadata = OrderedDict((key[:-7], {"version": 1}) for key in versioned)
    file = saved(tmp_path / "a.pt", [versioned, list(versioned._metadata) if again else []])

    with zipfile.ZipFile(tmp_path / "a.pt") as written:
        assert written.getinfo("a/data.pkl").file_size > archive_record.LARGE
    assert [each.keys for each in file.state_dicts] == [tuple(versioned)]
    assert {entry[1:] for entry in file.state_dicts[0].entries} == {((1,), "float32", False)}


def test_the_shortcut_is_taken(tmp_path: Path) -> None:
    """A usual state dict is read by it: half of the steps, and less, are left out of the memo."""
    import torch

    from ddpdoctor.checkpoint.pickles.opcodes import interpret

    torch.save({f"layer.{index}": torch.zeros(2, 2) for index in range(200)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        _, machine = interpret(archive.read("a/data.pkl"))

    assert machine.quick
    assert machine.skipped


@example(names=["/"], damages=[])
@FAST
@given(
    names=st.lists(st.text("ab/é", min_size=1, max_size=4), min_size=1, max_size=6, unique=True),
    damages=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 45), st.integers(0, 255)), max_size=2),
)
def test_a_directory_is_read_at_once_as_one_by_one(
    tmp_path: Path, names: list[str], damages: list[tuple[int, int, int]]
) -> None:
    """Sizes, places and refusals are those of each record by itself, whatever the directory says; names are found."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        for number, name in enumerate(names):
            made.writestr(name, b"x" * number)
    with (tmp_path / "a.zip").open("rb") as file:
        whole = archive.directory(file, (tmp_path / "a.zip").stat().st_size)
    data = bytearray(whole.data)
    for which, at, value in damages:
        data[whole.positions[which % len(names)] + at] = value

    def told(read: Callable[[], Any]) -> Any:
        try:
            return list(map(tuple, read()))
        except DamagedError as exc:
            return str(exc)

    described = partial(archive._described, bytes(data), whole.positions, whole.start)
    each = (archive._seen(bytes(data), at, whole.start) for at in whole.positions)
    assert told(described) == told(lambda: zip(*each, strict=True))
    assert list(whole.names()) == names
    assert [whole.record(name).size for name in names] == list(range(len(names)))
    assert not any(name + "a/b/a/b" in whole for name in names)


@FAST
@given(tree=TREES)
def test_what_is_only_looked_at_is_described_alike(tmp_path: Path, tree: Any) -> None:
    """Without the places of names, which a change needs, a file is described as with them."""
    import torch

    torch.save([grown(tree), {f"layer.{index}": torch.zeros(index % 3, 2) for index in range(20)}], tmp_path / "a.pt")

    looked, changed = opened(tmp_path / "a.pt", change=False), opened(tmp_path / "a.pt")

    assert looked.file == changed.file
    assert isinstance(looked.inside, Pickled)
    assert isinstance(changed.inside, Pickled)
    assert len(looked.inside.data) < len(changed.inside.data)
