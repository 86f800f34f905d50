"""A repair gives what loading, renaming and saving gives: for any nesting, sharing, format and stack of wrappers."""

from __future__ import annotations

import io
import os
import shutil
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from ddpdoctor import BadTarget
from ddpdoctor.checkpoint import inspect, repair, undo
from ddpdoctor.checkpoint.keys import WRAPPERS

SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: "." not in name and name not in WRAPPERS
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(".".join)
STACKS = st.lists(st.sampled_from(["module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module"]), max_size=3)
OTHERS = st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), NAMES, st.binary(max_size=20), st.just("cpu"))


@st.composite
def state_dicts(draw: st.DrawFn) -> dict[str, Any]:
    """Describe a state dict: bare paths with the number of a storage, the wrappers in front, and odd inner ones."""
    paths = draw(st.lists(PATHS, min_size=1, max_size=6, unique=True))
    storages = draw(st.lists(st.integers(0, 3), min_size=len(paths), max_size=len(paths)))
    inner = draw(st.booleans())
    return {"stack": draw(STACKS), "tensors": dict(zip(paths, storages, strict=True)), "inner": inner}


TREES = st.recursive(
    st.one_of(OTHERS, state_dicts()),
    lambda inner: st.one_of(
        st.dictionaries(NAMES.map(lambda name: f"key {name}"), inner, max_size=4), st.lists(inner, max_size=3)
    ),
    max_leaves=6,
)


def grown(tree: Any, storages: list[Any], *, bare: bool) -> Any:
    """Build what is described, with the wrappers' names in the keys or without them."""
    if isinstance(tree, dict) and "stack" in tree:
        found: OrderedDict[str, Any] = OrderedDict()
        for path, number in tree["tensors"].items():
            head, dot, last = path.partition(".")
            inside = f"{head}.{WRAPPERS[5]}.{last}" if tree["inner"] and dot else path
            key = path if bare else ".".join([*tree["stack"], inside])
            found[key] = storages[number][number:]
        return found
    if isinstance(tree, dict):
        return {key: grown(part, storages, bare=bare) for key, part in tree.items()}
    return [grown(part, storages, bare=bare) for part in tree] if isinstance(tree, list) else tree


def same(one: Any, other: Any, shared: dict[int, int]) -> bool:
    """Compare types, order, bits, and which tensors share memory."""
    import torch

    if isinstance(one, torch.Tensor):
        known = shared.setdefault(one.untyped_storage().data_ptr(), other.untyped_storage().data_ptr())
        return (
            known == other.untyped_storage().data_ptr()
            and (one.dtype, one.stride(), one.storage_offset()) == (other.dtype, other.stride(), other.storage_offset())
            and torch.equal(one, other)
        )
    if isinstance(one, dict):
        return (
            type(one) is type(other)
            and list(one) == list(other)
            and all(same(part, other[key], shared) for key, part in one.items())
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(same(*pair, shared) for pair in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


@SLOW
@given(tree=TREES, first=state_dicts(), legacy=st.booleans(), in_place=st.booleans(), protocol=st.integers(1, 5))
def test_it_is_as_loaded_renamed_and_saved(  # noqa: PLR0913, PLR0917 - each is drawn
    tmp_path: Path,
    tree: Any,
    first: Any,
    legacy: bool,  # noqa: FBT001
    in_place: bool,  # noqa: FBT001
    protocol: int,
) -> None:
    """Every state dict, wherever it stands, gets its bare keys; all else is as before, and undo gives the old bytes."""
    import torch

    storages = [torch.arange(6.0), torch.arange(5), torch.ones(7, dtype=torch.bfloat16), torch.zeros(4)]
    described = {"first": first, "rest": tree, "again": first}
    path, copy = tmp_path / "a.pt", tmp_path / "b.pt"
    copy.unlink(missing_ok=True)
    value = grown(described, storages, bare=False)
    torch.save(value, path, _use_new_zipfile_serialization=not legacy, pickle_protocol=protocol)
    before = path.read_bytes()

    done = repair(path, None if in_place else copy, in_place=in_place)

    after = torch.load(path if in_place else copy, weights_only=False)
    assert same(grown(described, storages, bare=True), after, {})
    assert done.changed == sum(len(each.renamed) for each in done.state_dicts)
    if in_place and done.changed:
        undo(path)
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.pt", *([] if in_place else ["b.pt"])]


@SLOW
@given(first=state_dicts(), stack=STACKS)
def test_there_and_back(tmp_path: Path, first: Any, stack: list[str]) -> None:
    """Prefixes that are put before bare keys, and taken off again, leave the keys as they were."""
    import torch

    value = grown(first, [torch.arange(6.0)] * 4, bare=True)
    path = tmp_path / "a.pt"
    torch.save(value, path)

    repair(path, in_place=True, add=".".join(stack))
    assert [".".join([*stack, key]) for key in value] == list(torch.load(path, weights_only=True))
    repair(path, in_place=True)
    assert list(value) == list(torch.load(path, weights_only=True))
    for _ in range(2 if stack else 0):
        undo(path)
    assert list(value) == list(torch.load(path, weights_only=True))
    with pytest.raises(BadTarget, match="nothing to undo"):
        undo(path)


def distant(path: Path, source: Path, gap: int) -> None:
    """Write an archive again with a hole of ``gap`` bytes before its last record and its directory."""
    data = source.read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        last = archive.infolist()[-1]
        start = archive.start_dir
    end = data.rindex(b"PK\x06\x06")
    directory = bytearray(data[start:end])
    entry = directory.rindex(b"PK\x01\x02")
    name = struct.unpack_from("<H", directory, entry + 28)[0]
    struct.pack_into("<I", directory, entry + 42, 0xFFFFFFFF)
    extra = struct.pack("<HHQ", 1, 8, last.header_offset + gap)
    struct.pack_into("<H", directory, entry + 30, len(extra))
    directory[entry + 46 + name :] = extra
    count = len(zipfile.ZipFile(io.BytesIO(data)).infolist())
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), start + gap)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, start + gap + len(directory), 1)
    last_end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, len(directory), 0xFFFFFFFF, 0)
    with path.open("wb") as file:
        file.write(data[: last.header_offset])
        file.seek(last.header_offset + gap)
        file.write(data[last.header_offset : start] + directory + end64 + locator + last_end)


@pytest.mark.parametrize("gap", [4096, 1 << 32, 5_000_000_000], ids=["near", "at 4 GiB", "beyond"])
def test_files_beyond_four_gibibytes(tmp_path: Path, gap: int) -> None:
    """Records and directory behind 4 GiB are found and pointed to again; the file is sparse, so nothing is copied."""
    import torch

    state = {"module.a": torch.arange(5.0), "module.b": torch.arange(3)}
    torch.save(state, tmp_path / "small.pt")
    path = tmp_path / "large.pt"
    distant(path, tmp_path / "small.pt", gap)
    size = path.stat().st_size
    assert inspect(path).state_dicts[0].keys == ("module.a", "module.b")

    repair(path, in_place=True)
    after = torch.load(path, weights_only=True, mmap=True)
    assert {key: value.tolist() for key, value in after.items()} == {"a": [0, 1, 2, 3, 4], "b": [0, 1, 2]}
    assert path.stat().st_blocks * 512 < 1 << 20

    undo(path)
    assert path.stat().st_size == size
    assert list(torch.load(path, weights_only=True, mmap=True)) == list(state)


def test_compressed_records_are_read(tmp_path: Path) -> None:
    """An archive that some tool has packed anew, with all of its records compressed, is repaired, too."""
    import torch

    torch.save({"module.a": torch.zeros(5000)}, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as source,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for info in source.infolist():
            target.writestr(info.filename, source.read(info))

    repair(tmp_path / "b.pt", tmp_path / "c.pt")

    with zipfile.ZipFile(tmp_path / "c.pt") as archive:
        assert archive.testzip() is None
    assert torch.load(tmp_path / "c.pt", weights_only=True)["a"].shape == (5000,)


def test_python_reads_the_archive_too(tmp_path: Path) -> None:
    """What is written obeys the format in the eyes of another reader, in place and as a copy, with every checksum."""
    import torch

    path = tmp_path / "a.pt"
    torch.save({f"module.{index}.weight": torch.rand(3) for index in range(3000)}, path)
    repair(path, tmp_path / "b.pt")
    repair(path, in_place=True)
    repair(path, in_place=True, to="ddp,compile")

    for name in ("a.pt", "b.pt"):
        with zipfile.ZipFile(tmp_path / name) as archive:
            assert archive.testzip() is None
            assert len(archive.namelist()) == len(set(archive.namelist()))


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="the kernel of this system copies no ranges")
def test_a_copy_on_another_file_system(tmp_path: Path) -> None:
    """Where the kernel cannot copy from one file system to the other, it is done by hand."""
    import torch

    other = Path("/dev/shm")  # noqa: S108 - its folder there is its own
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system at /dev/shm")
    torch.save({"module.a": torch.rand(10000)}, tmp_path / "a.pt")
    folder = other / f"ddpdoctor-test-{os.getpid()}"
    folder.mkdir()
    try:
        repair(tmp_path / "a.pt", folder / "b.pt")
        one, two = torch.load(tmp_path / "a.pt"), torch.load(folder / "b.pt")
        assert torch.equal(one["module.a"], two["a"])
    finally:
        shutil.rmtree(folder)
