"""A repair that cannot be done well is not begun: one clear line, exit status 2, and nothing is changed."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ddpdoctor import BadTarget, checkpoint
from ddpdoctor.checkpoint.rename import planning, repair

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is disabled",
    "ignore:.*torch.jit:DeprecationWarning",
    "ignore:TypedStorage is deprecated",
)

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Seen = dict[str, tuple[int, int, bytes | str]]
SECONDS = 20  # for one file, however it is made; the start of an interpreter under load is in it
MEMORY = 2 << 30
TENSORS = "__0_0.distcp"


@dataclass(frozen=True, slots=True)
class Good:
    """The bytes of whole checkpoints, written by the libraries that write them."""

    zip: bytes
    legacy: bytes
    safetensors: bytes
    metadata: bytes  # of a DCP directory
    tensors: bytes  # beside them


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    """Write one small checkpoint in each format."""
    import torch
    from safetensors.torch import save
    from torch.distributed.checkpoint import state_dict_saver

    folder = tmp_path_factory.mktemp("good")
    state = {"module.weight": torch.arange(6.0).reshape(2, 3), "module.bias": torch.ones(3)}
    torch.save({"model": state, "epoch": 3}, folder / "zip")
    torch.save({"model": state, "epoch": 3}, folder / "legacy", _use_new_zipfile_serialization=False)
    state_dict_saver.save(state, checkpoint_id=folder / "dcp", no_dist=True)
    return Good(
        (folder / "zip").read_bytes(),
        (folder / "legacy").read_bytes(),
        save(state),
        (folder / "dcp" / ".metadata").read_bytes(),
        (folder / "dcp" / TENSORS).read_bytes(),
    )


def lay_distributed(folder: Path, good: Good, metadata: bytes | None = None) -> Path:
    """Write a DCP directory, with these metadata or with the good ones; give the file of the metadata."""
    folder.mkdir(exist_ok=True)
    (folder / TENSORS).write_bytes(good.tensors)
    (folder / ".metadata").write_bytes(good.metadata if metadata is None else metadata)
    return folder / ".metadata"


def seen(folder: Path, *, folders: bool = True) -> Seen:
    """Return all that can be seen of the files below a folder: modes, times, bytes; of folders, too, if asked for."""
    found: Seen = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        stat = path.lstat()
        if path.is_dir() and not folders:
            continue
        if path.is_symlink():
            contents: bytes | str = str(path.readlink())
        else:
            contents = path.read_bytes() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (stat.st_mode, stat.st_mtime_ns, contents)
    return found


def refused(path: Path, output: Path | None = None, **options: Any) -> str:
    """See that a repair is refused in one line that names the file, and that nothing is changed; give the line."""
    folder = path.parent
    before = seen(folder)
    with pytest.raises(BadTarget) as caught:
        checkpoint.repair(path, output, **options)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 1000
    assert path.name in line or str(path.parent) in line, line
    assert seen(folder) == before
    return line


def refused_each_way(path: Path) -> None:
    """See that it is refused in place, into an output, and dry."""
    refused(path, in_place=True)
    refused(path, path.with_name("new.pt"))
    refused(path, dry_run=True)


def command_fails(ddpdoctor: Run, folder: Path, *args: str | Path, status: int = 2) -> str:
    """See that a command ends with that status, without traceback and without any change; give what it says."""
    before = seen(folder)
    done = ddpdoctor("repair", *map(str, args))
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
    assert done.stderr.strip()
    assert seen(folder) == before
    return done.stderr.strip()


def module(path: Path, _: Good) -> None:
    """Write a module that was pickled whole."""
    import torch

    torch.save(torch.nn.Linear(1, 1), path)


def script(path: Path, _: Good) -> None:
    """Write a TorchScript archive."""
    import torch

    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), path)


def exported(path: Path, _: Good) -> None:
    """Write a torch.export archive."""
    import torch

    buffer = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),)), buffer)
    path.write_bytes(buffer.getvalue())


def no_state_dict(path: Path, _: Good) -> None:
    """Write a file of torch without any tensor."""
    import torch

    torch.save({"epoch": 3}, path)


def collision(path: Path, _: Good) -> None:
    """Write a state dict in which two keys would become one."""
    import torch

    # The second pair has the prefix within, where it is taken out whatever the others have.
    torch.save({"a.weight": torch.zeros(1), "a._orig_mod.weight": torch.ones(1), "b": torch.ones(1)}, path)


def socket_file(path: Path, _: Good) -> None:
    """Make a socket."""
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket has at most a hundred bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def folder_with(path: Path, name: str, data: bytes) -> None:
    """Make a folder that holds one file."""
    path.mkdir()
    (path / name).write_bytes(data)


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    """Flip one bit."""
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


def archive_without(good: bytes, name: str) -> bytes:
    """Return the same archive without one of its records."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(buffer, "w") as new:
        for each in old.namelist():
            if not each.endswith(name):
                new.writestr(each, old.read(each))
    return buffer.getvalue()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 4242\n"
BAD: dict[str, Callable[[Path, Good], object]] = {
    "missing": lambda _path, _good: None,
    "a directory": lambda path, _: Path.mkdir(path),
    "a directory of other things": lambda path, _: folder_with(path, "notes.txt", b"x"),
    "a directory with an empty .metadata": lambda path, _: folder_with(path, ".metadata", b""),
    "a directory with a cut .metadata": lambda path, good: lay_distributed(path, good, good.metadata[:-9]),
    "a directory whose tensors are cut": lambda path, good: (
        lay_distributed(path, good),
        (path / TENSORS).write_bytes(good.tensors[:-1]),
    ),
    "empty": lambda path, _: path.write_bytes(b""),
    "a fifo": lambda path, _: os.mkfifo(path),
    "a socket": socket_file,
    "a git-lfs pointer": lambda path, _: path.write_bytes(POINTER),
    "a page": lambda path, _: path.write_bytes(b"<!DOCTYPE html><html><body>404</body></html>"),
    "text": lambda path, _: path.write_text("Repository not found\n"),
    "gzip": lambda path, good: path.write_bytes(gzip.compress(good.zip)),
    "zeros": lambda path, _: path.write_bytes(bytes(5000)),
    "noise": lambda path, _: path.write_bytes(b"\xfe\xdc\xba" * 500),
    "a plain pickle": lambda path, _: path.write_bytes(pickle.dumps({"module.weight": [1.0]})),
    "a zip archive of other things": lambda path, _: zipfile.ZipFile(path, "w").close(),
    "an archive that lacks a tensor": lambda path, good: path.write_bytes(archive_without(good.zip, "data/1")),
    "a cut archive": lambda path, good: path.write_bytes(good.zip[:-30]),
    "a cut legacy file": lambda path, good: path.write_bytes(good.legacy[:-1]),
    "a cut safetensors file": lambda path, good: path.write_bytes(good.safetensors[:-1]),
    "a module": module,
    "TorchScript": script,
    "torch.export": exported,
    "no state dict": no_state_dict,
    "a collision": collision,
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_whole_checkpoint(tmp_path: Path, good: Good, name: str) -> None:
    """In place, into an output and dry, it is refused in one line that names it, and nothing is changed."""
    path = tmp_path / "last.pt"
    BAD[name](path, good)

    refused_each_way(path)


@pytest.mark.parametrize("name", BAD)
def test_the_command_refuses_it(tmp_path: Path, good: Good, ddpdoctor: Run, name: str) -> None:
    """On the command line it is one line and exit status 2, without traceback."""
    path = tmp_path / "last.pt"
    BAD[name](path, good)

    said = command_fails(ddpdoctor, tmp_path, path, "--in-place")

    assert "\n" not in said
    assert "last.pt" in said


def test_a_device_is_no_checkpoint() -> None:
    """What gives bytes without end is not read to its end."""
    with pytest.raises(BadTarget, match="/dev/zero"):
        checkpoint.repair("/dev/zero", dry_run=True)


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_a_cut_file_is_refused_wherever_it_was_cut(tmp_path: Path, good: Good, kind: str) -> None:
    """However little is missing of a file, it is not repaired."""
    data: bytes = getattr(good, kind)
    path = tmp_path / "last.pt"
    for length in [*range(0, len(data) - 40, 13), *range(len(data) - 40, len(data))]:
        path.write_bytes(data[:length])
        refused(path, in_place=True)
        refused(path, tmp_path / "new.pt")


def test_cut_metadata_is_refused_wherever_it_was_cut(tmp_path: Path, good: Good) -> None:
    """The metadata of a DCP directory are no exception."""
    for length in range(0, len(good.metadata), 7):
        lay_distributed(tmp_path / "dcp", good, good.metadata[:length])
        refused(tmp_path / "dcp", in_place=True)


def test_a_distributed_checkpoint_without_its_tensors(tmp_path: Path, good: Good) -> None:
    """A directory that lacks a file that its metadata name is broken."""
    lay_distributed(tmp_path / "dcp", good)
    (tmp_path / "dcp" / TENSORS).unlink()

    refused_each_way(tmp_path / "dcp")


def tensors(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]] | None:
    """Return what torch, or safetensors, loads from a file; None when it does not load."""
    import torch
    from safetensors.torch import load_file

    try:
        state: Any = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
        state = state.get("model", state)
        return {str(key): (str(each.dtype), tuple(each.shape), each.numpy().tobytes()) for key, each in state.items()}
    except Exception:  # noqa: BLE001 - what torch raises for a damaged file is of any type
        return None


def bare(state: dict[str, Any]) -> dict[str, Any]:
    """Take the prefix off the keys."""
    return {key.removeprefix("module."): value for key, value in state.items()}


def outcome(path: Path) -> str:
    """Repair a file with one wrong bit, and see that the outcome makes nothing worse.

    It is ``refused``; or ``right``: it loads as before under the new names; or ``blind``, when torch did not load it.
    """
    before, again, data = tensors(path), tensors(path), path.read_bytes()
    output = path.with_name(f"new{path.suffix}")
    output.unlink(missing_ok=True)
    try:
        checkpoint.repair(path, output)
    except BadTarget:
        assert not output.exists()
        refused(path, in_place=True)
        return "refused"
    assert path.read_bytes() == data
    if before is None or before != again:  # of a record with a wrong method, torch gives memory that nobody has set
        return "blind"
    after = tensors(output)
    assert after is not None
    assert list(after.values()) == list(before.values())
    # The name of the wrapper itself may be what was hit: then there is nothing to take off.
    assert list(after) in (list(before), list(bare(before)))
    return "right"


def outcomes_of_flips(path: Path, data: bytes, places: Iterable[int]) -> Counter[str]:
    """Flip a bit of each byte, one at a time; count what came of it."""
    counted: Counter[str] = Counter()
    for at in places:
        path.write_bytes(flipped(data, at, at * 5 % 8))
        counted[outcome(path)] += 1
    return counted


def test_a_flipped_bit_in_the_pickle_is_refused(tmp_path: Path, good: Good) -> None:
    """Any bit of data.pkl: the CRC-32 tells, which torch.load does not look at."""
    with zipfile.ZipFile(io.BytesIO(good.zip)) as archive:
        data = archive.read("zip/data.pkl")
    start = good.zip.index(data)
    for at in range(start, start + len(data)):
        (tmp_path / "last.pt").write_bytes(flipped(good.zip, at, at % 8))
        refused(tmp_path / "last.pt", in_place=True)
        refused(tmp_path / "last.pt", tmp_path / "new.pt")


def test_a_flipped_bit_in_the_directory(tmp_path: Path, good: Good) -> None:
    """Any bit of the central directory and of the end records: refused, or of no consequence to torch.load."""
    start = good.zip.index(b"PK\1\2")

    counted = outcomes_of_flips(tmp_path / "last.pt", good.zip, range(start, len(good.zip)))

    assert counted["refused"] > 100
    assert not counted["blind"], counted


def test_a_flipped_bit_before_a_record(tmp_path: Path, good: Good) -> None:
    """Any bit of the local headers, which torch.load reads too.

    Of the length of the extra field, whose contents nobody knows, only what leads into another record is seen.
    """
    starts = [match.start() for match in re.finditer(rb"PK\x03\x04", good.zip)]
    path = tmp_path / "last.pt"

    counted = outcomes_of_flips(path, good.zip, (at for start in starts for at in range(start, start + 28)))
    extra = outcomes_of_flips(path, good.zip, (at for start in starts for at in (start + 28, start + 29)))

    assert counted["refused"]
    assert not counted["blind"], counted
    assert extra["refused"]


def overwritten(data: bytes, at: int, byte: int, width: int) -> bytes:
    """Overwrite some bytes."""
    return data[:at] + bytes([byte]) * width + data[at + width :]


def packed_by_python(good: bytes) -> bytes:
    """Pack an archive anew, by a library that writes another kind of directory."""
    return archive_without(good, "no such record")


@pytest.mark.parametrize("pack", [bytes, packed_by_python])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 22])
def test_an_overwritten_archive(tmp_path: Path, good: Good, pack: Callable[[bytes], bytes], width: int) -> None:
    """Some bytes of zeros or ones anywhere but in pickle and tensors: refused, or torch loads it as before."""
    data = pack(good.zip)
    path = tmp_path / "last.pt"
    path.write_bytes(data)
    before = tensors(path)
    with zipfile.ZipFile(path) as archive:
        big = [archive.read(name) for name in archive.namelist() if "/data" in name]
    spans = [(data.index(part), data.index(part) + len(part)) for part in big]
    counted: Counter[str] = Counter()
    for at in range(width % 7, len(data) - width, 7):
        if any(at < end and at + width > start for start, end in spans):
            continue
        for byte in (0, 1, 255):
            path.write_bytes(overwritten(data, at, byte, width))
            try:
                checkpoint.repair(path, dry_run=True)
            except BadTarget:
                counted["refused"] += 1
                continue
            counted["right"] += 1
            assert tensors(path) == before, (at, byte)
    assert counted["refused"] > 30, counted
    assert counted["right"]


def with_record(good: bytes, name: str, data: bytes | None) -> bytes:
    """Return the same archive with other contents of a record, or without it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(buffer, "w") as new:
        for each in old.namelist():
            contents = data if each.endswith(f"/{name}") else old.read(each)
            if contents is not None:
                new.writestr(each, contents)
    return buffer.getvalue()


RECORDS: dict[str, tuple[str, bytes | None, bool]] = {
    "as it was": ("version", b"3\n", True),
    "a later version": ("version", b"10\n", True),
    "a version of the future": ("version", b"11\n", False),
    "no version": ("version", None, False),
    "an empty version": ("version", b"", False),
    "a version that is no number": ("version", b"three\n", False),
    "version 0": ("version", b"0\n", False),
    "an unknown byte order": ("byteorder", b"middle", False),
    "no byte order": ("byteorder", None, True),
    "an alignment that is no number": (".storage_alignment", b"x", False),
    "a tensor that is too short": ("data/0", bytes(20), False),
    "a tensor that is too long": ("data/0", bytes(28), False),
    "a tensor that is empty": ("data/0", b"", False),
}


@pytest.mark.parametrize("name", RECORDS)
def test_the_records_beside_the_pickle(tmp_path: Path, good: Good, name: str) -> None:
    """What torch refuses for the sake of a small record, or of a tensor's length, is refused, with the record."""
    record, contents, loads = RECORDS[name]
    path = tmp_path / "last.pt"
    path.write_bytes(with_record(good.zip, record, contents))

    if loads:
        assert tensors(path) is not None
        checkpoint.repair(path, tmp_path / "new.pt")
        assert tensors(tmp_path / "new.pt") is not None
    else:
        assert record in refused(path, dry_run=True)
        refused_each_way(path)


@pytest.mark.parametrize("what", ["version", "list", "length"])
def test_a_damaged_legacy_file(tmp_path: Path, good: Good, what: str) -> None:
    """Another version, list of storages or length of a tensor than the pickle's is refused, as torch refuses it."""
    end = good.legacy.rindex(b"e.") + 2
    first = good.legacy.rindex(b"X", 0, end)
    places = {"version": 18, "list": first + 8, "length": end}
    path = tmp_path / "last.pt"
    path.write_bytes(flipped(good.legacy, places[what]))

    assert tensors(path) is None
    refused_each_way(path)


def test_a_flipped_bit_in_the_header_of_safetensors(tmp_path: Path, good: Good) -> None:
    """Any bit of the header: refused, or what safetensors loads as well, perhaps under another name."""
    end = 8 + int.from_bytes(good.safetensors[:8], "little")

    counted = outcomes_of_flips(tmp_path / "last.safetensors", good.safetensors, range(end))

    assert counted["refused"] > counted["right"]
    assert not counted["blind"], counted


def test_a_flipped_bit_in_a_legacy_file(tmp_path: Path, good: Good) -> None:
    """Any bit before the tensors: it has no checksum, but what torch loads is never repaired into something else."""
    counted = outcomes_of_flips(tmp_path / "last.pt", good.legacy, range(good.legacy.rindex(b".")))

    assert counted["refused"]
    assert counted["right"]


@pytest.fixture(params=["zip", "legacy", "safetensors", "metadata"])
def whole(request: pytest.FixtureRequest, tmp_path: Path, good: Good) -> Path:
    """Return a checkpoint of each format, which can be repaired."""
    data = getattr(good, request.param)
    if request.param == "metadata":
        lay_distributed(tmp_path / "dcp", good)
        return tmp_path / "dcp"
    path = tmp_path / ("last.safetensors" if request.param == "safetensors" else "last.pt")
    path.write_bytes(data)
    return path


def changed_file(path: Path) -> Path:
    """Return the file that a repair in place changes."""
    return path / ".metadata" if path.is_dir() else path


def test_the_good_ones_are_good(whole: Path) -> None:
    """What the other tests here spoil can be repaired as long as it is not spoiled."""
    assert checkpoint.repair(whole, dry_run=True).changed == 2
    assert checkpoint.repair(whole, whole.with_name("new")).changed == 2
    assert checkpoint.repair(whole, in_place=True).changed == 2
    checkpoint.undo(whole)


def test_a_read_only_file_stays_as_it_is(whole: Path) -> None:
    """In place, a file of mode 0444 is refused, also for root, to whom the kernel would not refuse it."""
    changed_file(whole).chmod(0o444)

    refused(whole, in_place=True)

    assert checkpoint.repair(whole, whole.with_name("new")).changed == 2  # a new file is another thing


def test_a_read_only_folder_stays_as_it_is(whole: Path) -> None:
    """In a folder of mode 0555 nothing is changed, and nothing is made."""
    folder = changed_file(whole).parent
    folder.chmod(0o555)
    try:
        refused(whole, in_place=True)
        if whole.is_file():
            refused(whole, folder / "new.pt")
    finally:
        folder.chmod(0o755)


def test_a_link_is_not_followed_in_place(whole: Path) -> None:
    """A symbolic link leads to what others use, and a hard link is such a file: in place, both are refused."""
    link = whole.with_name("link" + whole.suffix)
    link.symlink_to(whole)
    refused(link, in_place=True)
    link.unlink()

    file = changed_file(whole)
    os.link(file, whole.with_name("other"))
    refused(whole, in_place=True)


def test_a_link_in_the_folder_of_a_distributed_checkpoint(tmp_path: Path, good: Good) -> None:
    """Its .metadata may be the link."""
    lay_distributed(tmp_path / "dcp", good).rename(tmp_path / "metadata")
    (tmp_path / "dcp" / ".metadata").symlink_to(tmp_path / "metadata")

    refused(tmp_path / "dcp", in_place=True)


def test_an_output_that_exists_is_kept(whole: Path) -> None:
    """Without force, an output that is there is not replaced, whatever it is."""
    for make in (Path.touch, Path.mkdir, lambda path: path.symlink_to("nowhere")):
        output = whole.with_name(f"new{whole.suffix}")
        make(output)
        refused(whole, output)
        (output.rmdir if output.is_dir() else output.unlink)()


def test_an_output_is_not_the_input(whole: Path) -> None:
    """An output that is the input, by whatever way, is refused, also with force."""
    whole.with_name("symbolic").symlink_to(whole)
    for output in (whole, whole.parent / ".." / whole.parent.name / whole.name, whole.with_name("symbolic")):
        refused(whole, output)
        refused(whole, output, force=True)


def test_an_output_is_not_the_folder_of_the_input(whole: Path) -> None:
    """A folder is never thrown away for an output, least of all the one that the input is in."""
    refused(whole, whole.parent, force=True)


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path, good: Good) -> None:
    """Force replaces a file, not a folder with what is in it."""
    (tmp_path / "last.pt").write_bytes(good.zip)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "work.txt").write_text("of a year")

    refused(tmp_path / "last.pt", tmp_path / "new", force=True)


def test_what_is_no_file_is_not_replaced(tmp_path: Path, good: Good) -> None:
    """Force replaces a file, and never a device, a pipe or a socket: as root, that of the whole machine."""
    (tmp_path / "last.pt").write_bytes(good.zip)
    os.mkfifo(tmp_path / "new.pt")

    assert "pipe" in refused(tmp_path / "last.pt", tmp_path / "new.pt", force=True)


@pytest.mark.parametrize("name", ["conj", "neg"])
def test_values_that_are_not_the_bytes_become_no_safetensors(tmp_path: Path, name: str) -> None:
    """A conjugate or negative view is stored as what it is a view of: its bytes alone would be other values."""
    import torch

    seen_as = torch.ones(2, dtype=torch.complex64).conj() if name == "conj" else torch._neg_view(torch.ones(2))
    torch.save({"module.a": seen_as, "module.b": torch.ones(2)}, tmp_path / "last.pt")

    assert "module.a" in refused(tmp_path / "last.pt", tmp_path / "new.safetensors")
    checkpoint.repair(tmp_path / "last.pt", tmp_path / "new.pt")
    assert torch.equal(torch.load(tmp_path / "new.pt")["a"].resolve_conj(), seen_as.resolve_conj())


def test_no_tensor_gets_the_name_of_the_notes(tmp_path: Path) -> None:
    """What safetensors keeps its notes under is no name for a tensor: the file would not load any more."""
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    head = json.dumps({"module.__metadata__": entry}).encode()
    (tmp_path / "last.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(8))

    refused(tmp_path / "last.safetensors", tmp_path / "new.safetensors")
    assert "__metadata__" in refused(tmp_path / "last.safetensors", in_place=True)


def test_names_that_stand_beside_the_weights_as_well(tmp_path: Path) -> None:
    """A file of DeepSpeed lists its buffers and parameters by name: with the weights alone renamed, it is not found."""
    import torch

    state = {"_orig_mod.weight": torch.ones(2), "_orig_mod.mean": torch.ones(2)}
    lists = {"buffer_names": ["_orig_mod.mean"], "param_shapes": [{"_orig_mod.weight": torch.Size([2])}]}
    torch.save({"module": state, **lists}, tmp_path / "mp_rank_00_model_states.pt")

    assert "buffer_names" in refused(tmp_path / "mp_rank_00_model_states.pt", in_place=True)
    checkpoint.repair(tmp_path / "mp_rank_00_model_states.pt", tmp_path / "bare.pt")
    assert list(torch.load(tmp_path / "bare.pt")["module"]) == ["weight", "mean"]


def test_a_prefix_that_all_keys_have_already_is_not_added_again(tmp_path: Path) -> None:
    """What was made for Lightning is not made for it a second time."""
    import torch

    torch.save({"weight": torch.ones(2)}, tmp_path / "last.pt")
    checkpoint.repair(tmp_path / "last.pt", in_place=True, to="lightning")

    assert "already" in refused(tmp_path / "last.pt", in_place=True, to="lightning")
    assert list(torch.load(tmp_path / "last.pt")) == ["model.weight"]


def test_commands_for_a_name_that_begins_with_a_dash_can_be_pasted(tmp_path: Path, good: Good, ddpdoctor: Run) -> None:
    """The commands that inspect and repair print name such a file in a way that no option is read from."""
    (tmp_path / "-x.pt").write_bytes(good.zip)

    assert "repair ./-x.pt" in ddpdoctor("inspect", "--", "-x.pt", cwd=tmp_path).stdout
    assert "repair ./-x.pt --undo" in ddpdoctor("repair", "--in-place", "--", "-x.pt", cwd=tmp_path).stdout


def test_an_output_in_a_missing_folder(whole: Path) -> None:
    """No folders are made for an output."""
    assert "missing" in refused(whole, whole.parent / "missing" / "new.pt")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of 64 pages, which is mounted for the test."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={64 * 4096}", "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"mounting a tmpfs takes root: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors", "metadata"])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_full_disk(small_disk: Path, good: Good, kind: str, in_place: bool) -> None:  # noqa: FBT001
    """However many pages are free, the repair is done, or refused with nothing changed and nothing left behind."""
    data = getattr(good, kind)
    path = file = small_disk / ("last.safetensors" if kind == "safetensors" else "last.pt")
    if kind == "metadata":
        path = small_disk / "dcp"
        file = lay_distributed(path, good)
    outcomes = []
    for free in range(12):
        file.write_bytes(data)
        fill(small_disk / "filler", free)
        try:
            if in_place:
                outcomes.append(done_or_refused(path, in_place=True))
            else:
                outcomes.append(done_or_refused(path, small_disk / "new"))
        finally:
            (small_disk / "filler").unlink()
        if outcomes[-1] and in_place:
            checkpoint.undo(path)
            assert file.read_bytes() == data
        remove(small_disk / "new")
    assert outcomes[0] is False
    assert outcomes[-1] is True
    assert outcomes == sorted(outcomes)


def done_or_refused(path: Path, output: Path | None = None, **options: Any) -> bool:
    """Repair it, or see that it is refused without any change."""
    before = seen(path.parent, folders=False)
    try:
        checkpoint.repair(path, output, **options)
    except BadTarget:
        assert seen(path.parent, folders=False) == before
        return False
    return True


def fill(path: Path, free: int) -> None:
    """Leave so many pages free on the file system."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)) == 4096:
            pass
    os.truncate(path, path.stat().st_size // 4096 * 4096 - free * 4096)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


LIMITED_SIZE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from ddpdoctor.cli import main
main()
"""


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_a_limit_of_the_size_of_files(tmp_path: Path, good: Good, kind: str) -> None:
    """A write that the kernel ends half way, as at a quota, is a refusal, too, and takes nothing with it."""
    path = tmp_path / f"last.{kind}"
    data = getattr(good, kind)
    path.write_bytes(data)
    before = seen(tmp_path, folders=False)
    statuses = []
    for limit in (0, 50, len(data) - 100, len(data) + 10, len(data) + 300, len(data) + 5000):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED_SIZE, str(limit), "repair", "--in-place", path],
            capture_output=True,
            text=True,
            check=False,
        )
        statuses.append(done.returncode)
        if done.returncode:
            assert done.returncode == 2, done.stderr
            assert done.stderr.strip() == f"ddpdoctor: {path}: File too large; nothing was changed"
            assert seen(tmp_path, folders=False) == before
        else:
            checkpoint.undo(path)
            assert path.read_bytes() == data
            before = seen(tmp_path, folders=False)
    assert statuses[0] == 2
    assert statuses[-1] == 0


HOLDING = "import sys; file = open(sys.argv[1], sys.argv[2]); print('open', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("mode", ["r+b", "ab"])
def test_a_file_that_is_being_written(whole: Path, mode: str) -> None:
    """What another process has open for writing is not changed under its hands; later it is."""
    command = [sys.executable, "-c", HOLDING, str(changed_file(whole)), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"open\n"
        for way in ({"in_place": True}, {"output": whole.with_name("new")}):
            line = refused(whole, **way)
            assert str(process.pid) in line or "writ" in line
        process.communicate()

    assert checkpoint.repair(whole, in_place=True).changed == 2


def two_names(path: Path) -> None:
    """Give a file a second name."""
    os.link(path, path.with_name("other"))


def led_to(path: Path) -> None:
    """Put a link in the place of a file."""
    path.rename(path.with_name("real.pt"))
    path.symlink_to("real.pt")


STATES: dict[str, tuple[Callable[[Path], object], str]] = {
    "read-only": (lambda path: path.chmod(0o444), "is read-only (mode 444"),
    "in a read-only folder": (lambda path: path.parent.chmod(0o555), "is a read-only folder"),
    "a symbolic link": (led_to, "is a symbolic link to"),
    "a hard link": (two_names, "has 2 names (hard links)"),
}


@pytest.mark.parametrize("name", STATES)
def test_the_command_leaves_alone(tmp_path: Path, good: Good, ddpdoctor: Run, name: str) -> None:
    """What a file of this kind is, the command says in a line, and changes nothing."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "last.pt"
    path.write_bytes(good.zip)
    spoil, words = STATES[name]
    spoil(path)

    said = command_fails(ddpdoctor, folder, path, "--in-place")

    folder.chmod(0o755)
    assert words in said
    assert "\n" not in said


def test_the_command_names_who_writes(tmp_path: Path, good: Good, ddpdoctor: Run) -> None:
    """While a file is open for writing, the command says in which process, in place and for an output."""
    path = tmp_path / "last.pt"
    path.write_bytes(good.zip)
    with path.open("r+b"):
        for way in (["--in-place"], ["-o", tmp_path / "new.pt"]):
            said = command_fails(ddpdoctor, tmp_path, path, *way)
            assert f"{path} is being written by process {os.getpid()} (" in said


def test_a_second_repair_of_the_same_file(whole: Path) -> None:
    """While one ddpdoctor is at a file, another one leaves it alone."""
    with changed_file(whole).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "is locked by another process" in refused(whole, in_place=True)

    assert checkpoint.repair(whole, in_place=True).changed == 2


def test_a_file_that_changes_while_it_is_looked_at(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written between the look and the change is kept, and not mixed with what was seen before."""
    file = changed_file(whole)
    newer = file.read_bytes() + b"newer"
    planned = planning.planned

    def changing(*args: Any) -> Any:
        file.write_bytes(newer)
        return planned(*args)

    for way in ({"in_place": True}, {"output": whole.with_name("new")}):
        file.write_bytes(newer[:-5])
        monkeypatch.setattr(repair, "planned", changing)
        with pytest.raises(BadTarget, match=rf"{whole.name}.* was changed while it was looked at"):
            checkpoint.repair(whole, **way)
        monkeypatch.undo()
        assert file.read_bytes() == newer
        assert [each.name for each in whole.parent.iterdir()] == [whole.name]


def test_two_keys_that_would_become_one(tmp_path: Path) -> None:
    """A collision is refused whatever rule makes it, and the line names the keys, in one line whatever they hold."""
    import torch

    path = tmp_path / "last.pt"
    keys = ["a.weight", "module.a.weight", "b\nc", "module.b\nc", "x.1"]
    torch.save({key: torch.zeros(1) for key in keys}, path)

    for options in (
        {"strip": ["module."]},
        {"rename": [("module.a.weight", "a.weight")]},
        {"rename": [("module.b\nc", "b\nc")]},
        {"rename": [("a", "module.a")]},
        {"regex": [(r".*", "same")]},
        {"regex": [(r"^module\.b", "b")]},
    ):
        refused(path, in_place=True, **options)
        refused(path, tmp_path / "new.pt", **options)
        refused(path, dry_run=True, **options)
    assert "a.weight" in refused(path, in_place=True, rename=[("module.a.weight", "a.weight")])


@pytest.mark.parametrize(
    "options",
    [
        {"regex": [("(", "x")]},
        {"regex": [("module", r"\7")]},
        {"to": "nonsense"},
        {"to": "ddp,,compile"},
        {"like": "missing.pt"},
    ],
)
def test_options_that_make_no_sense(whole: Path, options: dict[str, Any]) -> None:
    """A wrong option is one line, too; it names what is wrong, and nothing is done."""
    before = seen(whole.parent)
    for way in ({"in_place": True}, {"output": whole.with_name("new")}, {"dry_run": True}):
        with pytest.raises(BadTarget) as caught:
            checkpoint.repair(whole, **way, **options)
        assert "\n" not in str(caught.value)
        assert seen(whole.parent) == before


@pytest.mark.parametrize(
    "args",
    [
        ["--in-place", "--regex", "(=x"],
        ["--in-place", "--regex", "no equals sign"],
        ["--in-place", "--map", "no equals sign"],
        ["--in-place", "--to", "nonsense"],
        ["--in-place", "-o", "new.pt"],
        ["--in-place", "--undo"],
        ["--in-place", "--dry-run"],
        ["--in-place", "--like", "missing.pt"],
        ["--in-place", "--like", "empty.pt"],
        ["--in-place", "--like", "last.pt", "--model", "train.py:build"],
        ["--in-place", "--model", "train.py:build"],
        ["--undo"],
        ["--undo", "--to", "ddp"],
        [],
        ["-o", "missing/new.pt"],
        ["-o", "last.pt"],
        ["-o", "last.pt", "--force"],
        ["other.pt", "-o", "missing/new.pt"],
        ["other.pt", "-o", "empty.pt"],
        ["other.pt", "-o", "empty.pt", "--force"],
    ],
)
def test_a_command_line_that_makes_no_sense(tmp_path: Path, good: Good, ddpdoctor: Run, args: list[str]) -> None:
    """Exit status 2, no traceback, nothing changed."""
    (tmp_path / "last.pt").write_bytes(good.zip)
    (tmp_path / "other.pt").write_bytes(good.zip)
    no_state_dict(tmp_path / "empty.pt", good)
    full = [str(tmp_path / each) if each.endswith(".pt") else each for each in args]

    said = command_fails(ddpdoctor, tmp_path, tmp_path / "last.pt", *full)

    assert "rror" in said or said.startswith(("ddpdoctor: ", "ddpdoctor repair: "))


def test_there_is_nothing_to_undo(whole: Path) -> None:
    """Without a journal an undo is refused; so is a second one."""
    before = seen(whole.parent)
    with pytest.raises(BadTarget, match=whole.name):
        checkpoint.undo(whole)
    assert seen(whole.parent) == before

    checkpoint.repair(whole, in_place=True)
    checkpoint.undo(whole)
    again = seen(whole.parent)
    with pytest.raises(BadTarget, match=whole.name):
        checkpoint.undo(whole)
    assert seen(whole.parent) == again


@pytest.mark.parametrize("change", [lambda data: data + b"more", lambda data: data[:-1], lambda data: b"x" * len(data)])
def test_a_file_that_was_changed_since_is_not_undone(whole: Path, change: Callable[[bytes], bytes]) -> None:
    """Undo and repair are for the file that was repaired: another one under its name, as the next epoch's, is kept."""
    checkpoint.repair(whole, in_place=True)
    file = changed_file(whole)
    other = change(file.read_bytes())
    file.unlink()
    file.write_bytes(other)

    with pytest.raises(BadTarget) as caught:
        checkpoint.undo(whole)
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == other
    with suppress(BadTarget):
        checkpoint.repair(whole, in_place=True)  # what a killed run has left is taken back first: this is no such thing
    assert file.read_bytes()[: len(other) - 1] == other[:-1]


@pytest.mark.parametrize("damage", [b"", b"{", b"\0" * 100, b"[]", b"null", b'{"size": -1}', b"\xff\xfe"])
def test_a_damaged_journal_does_no_harm(whole: Path, damage: bytes) -> None:
    """A journal that is no journal is refused or put aside, and never makes the checkpoint another one."""
    checkpoint.repair(whole, in_place=True)
    (journal,) = (path for path in whole.parent.rglob("*") if path.name.endswith("ddpdoctor-journal"))
    journal.write_bytes(damage)
    data = changed_file(whole).read_bytes()

    with pytest.raises(BadTarget) as caught:
        checkpoint.undo(whole)
    assert "\n" not in str(caught.value)
    assert changed_file(whole).read_bytes() == data
    with suppress(BadTarget):
        assert checkpoint.repair(whole, in_place=True).changed == 0
    assert changed_file(whole).read_bytes() == data


def test_a_cut_journal_does_no_harm(whole: Path, good: Good) -> None:
    """Nor does one of which only the first bytes are there."""
    kind = {"last.pt": "", "last.safetensors": "safetensors", "dcp": "metadata"}[whole.name]
    original = changed_file(whole).read_bytes()
    assert not kind or original == getattr(good, kind)
    checkpoint.repair(whole, in_place=True)
    (journal,) = (path for path in whole.parent.rglob("*") if path.name.endswith("ddpdoctor-journal"))
    full, data = journal.read_bytes(), changed_file(whole).read_bytes()

    for length in range(0, len(full), max(1, len(full) // 40)):
        journal.write_bytes(full[:length])
        with suppress(BadTarget):
            checkpoint.undo(whole)
            assert changed_file(whole).read_bytes() == original
            changed_file(whole).write_bytes(data)
        assert changed_file(whole).read_bytes() == data


def test_like_something_without_weights(tmp_path: Path, good: Good) -> None:
    """What is to show the names must have some."""
    (tmp_path / "last.pt").write_bytes(good.zip)
    no_state_dict(tmp_path / "empty.pt", good)
    (tmp_path / "page.pt").write_text("<html></html>")

    for name in ("empty.pt", "page.pt", "missing.pt"):
        with pytest.raises(BadTarget, match=name):
            checkpoint.repair(tmp_path / "last.pt", tmp_path / "new.pt", like=tmp_path / name)
    assert not (tmp_path / "new.pt").exists()


def test_no_renaming_makes_it_fit(whole: Path, ddpdoctor: Run) -> None:
    """The names that lack, and those that are too many, are told; the exit status is 1; nothing is changed."""
    import torch

    other = whole.with_name("other.pt")
    torch.save({"weight": torch.zeros(2, 3), "head\n.bias": torch.zeros(3)}, other)
    before = seen(whole.parent)

    for way in ({"in_place": True}, {"output": whole.with_name("new")}, {"dry_run": True}):
        with pytest.raises(checkpoint.NoMatch) as caught:
            checkpoint.repair(whole, like=other, **way)
        assert isinstance(caught.value, BadTarget)
        assert "\n" not in str(caught.value)
        assert seen(whole.parent) == before

    said = command_fails(ddpdoctor, whole.parent, whole, "--in-place", "--like", other, status=1)
    assert "head" in said
    assert "bias" in said
    assert "missing" in said
    assert "unexpected" in said


def test_an_index_that_leads_out_of_its_folder(tmp_path: Path, good: Good) -> None:
    """The index of a sharded directory names files in it; one that names others changes nothing anywhere."""
    (tmp_path / "secret.safetensors").write_bytes(good.safetensors)
    for number, name in enumerate(
        ["../secret.safetensors", str(tmp_path / "secret.safetensors"), "missing.safetensors", ".", "", "a\0b"]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        index = {"metadata": {}, "weight_map": {"module.weight": name, "module.bias": name}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        refused(folder, in_place=True)
        refused(folder, tmp_path / "new")


@pytest.mark.parametrize("index", ["", "[]", "{}", '{"weight_map": 1}', '{"weight_map": {"a": 1}}', "[" * 100_000])
def test_an_index_that_is_none(tmp_path: Path, index: str) -> None:
    """Whatever stands in the index of a sharded directory, the answer is one line."""
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "model.safetensors.index.json").write_text(index)

    refused_each_way(folder)
