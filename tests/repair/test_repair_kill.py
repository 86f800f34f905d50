"""SIGKILL at any moment of a repair leaves the checkpoint as it was or as it is to be, and nothing is lost later."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from helpers import TESTS

from ddpdoctor import BadTarget, checkpoint
from ddpdoctor.checkpoint.steps import read_runs

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:TypedStorage is deprecated")

NAMES = ("zip", "legacy", "safetensors", "dcp", "sharded", "large zip")
SMALL = NAMES[:4]
JOURNAL = "ddpdoctor-journal"
SEED = 20240229

Tensors = Mapping[str, tuple[str, tuple[int, ...], bytes]]  # by key: dtype, shape, bytes


@dataclass(frozen=True, slots=True)
class Case:
    """A checkpoint: the bytes of its files, and what it must load as before and after the repair."""

    name: str
    target: str  # what is repaired, within the folder
    files: Mapping[str, bytes]
    old: Tensors
    new: Tensors
    options: Mapping[str, Any]
    known: dict[bytes, Tensors] = field(default_factory=dict)  # what files of these bytes load as

    def lay(self, folder: Path) -> Path:
        """Write the original into a new folder."""
        for name, data in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return folder / self.target

    def state(self, path: Path) -> Tensors:
        """Load it by torch, or by safetensors; bytes that were loaded before need no second time."""
        digest = hashlib.sha256(b"".join(b"%b\0%b" % (name.encode(), data) for name, data in read(path).items()))
        if digest.digest() not in self.known:
            self.known[digest.digest()] = loaded(path)
        return self.known[digest.digest()]


def read(path: Path) -> dict[str, bytes]:
    """Read all the files of a checkpoint, but for what the tool keeps beside them."""
    if path.is_file():
        return {path.name: path.read_bytes()}
    return {name: data for name, data in tree(path).items() if "ddpdoctor" not in name}


def tree(folder: Path) -> dict[str, bytes]:
    """Read all files below a folder."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


def loaded(path: Path) -> Tensors:
    """Load a checkpoint of any format, and give the bytes of its tensors."""
    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    if (path / ".metadata").exists():
        dcp_to_torch_save(path, path.parent / "converted.pt")
        state = torch.load(path.parent / "converted.pt", weights_only=True)
        (path.parent / "converted.pt").unlink()
    elif path.is_dir():
        index = json.loads((path / "model.safetensors.index.json").read_text())["weight_map"]
        parts = {name: safetensors_of(path / name) for name in set(index.values())}
        state = {key: parts[name].pop(key) for key, name in index.items()}
        assert not any(parts.values()), "the index lacks tensors of its files"
    elif path.suffix == ".safetensors":
        state = safetensors_of(path)
    else:
        state = torch.load(path, weights_only=True)
    tensors = state.get("model", state)
    return {key: (str(each.dtype), tuple(each.shape), each.numpy().tobytes()) for key, each in tensors.items()}


def safetensors_of(path: Path) -> dict[str, Any]:
    """Load a safetensors file."""
    from safetensors.torch import load

    return load(path.read_bytes())


def built(name: str, folder: Path) -> Case:
    """Write a checkpoint of a format by the library that writes it."""
    import torch
    from safetensors.torch import save_file
    from torch.distributed.checkpoint.state_dict_saver import save

    torch.manual_seed(0)
    count = 2100 if name == "large zip" else 5
    state = {f"module.layers.{index}.weight": torch.randn(2, index % 3 + 1) for index in range(count)}
    options: dict[str, Any] = {"to": "bare"}
    match name:
        case "zip" | "large zip":
            target = "last.pt"
            torch.save({"model": state, "epoch": 3}, folder / target)
        case "legacy":
            target = "last.pth"
            torch.save({"model": state, "epoch": 3}, folder / target, _use_new_zipfile_serialization=False)
        case "safetensors":
            target = "model.safetensors"
            save_file(state, folder / target)
        case "dcp":
            target = "dcp"
            save(state, checkpoint_id=folder / target, no_dist=True)
        case _:
            target = "shards"
            sharded(state, folder / target)
    old = loaded(folder / target)
    new = {key.removeprefix("module."): value for key, value in old.items()}
    return Case(name, target, tree(folder), old, new, options)


def sharded(state: Mapping[str, Any], folder: Path) -> None:
    """Write a directory of two safetensors files with an index, as large models come."""
    from safetensors.torch import save_file

    folder.mkdir()
    keys = list(state)
    names = dict.fromkeys(keys[:2], "model-00001-of-00002.safetensors")
    names.update(dict.fromkeys(keys[2:], "model-00002-of-00002.safetensors"))
    for name in set(names.values()):
        save_file({key: state[key] for key in keys if names[key] == name}, folder / name)
    total = sum(each.numel() * 4 for each in state.values())
    index = {"metadata": {"total_size": total}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Return the case of a name; each is written once."""
    made: dict[str, Case] = {}

    def case(name: str) -> Case:
        if name not in made:
            made[name] = built(name, tmp_path_factory.mktemp("case"))
        return made[name]

    return case


Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(cases: Callable[[str], Case], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Yield a function that has a repair done in a fork of a process that is warm, and killed there."""
    script = TESTS.joinpath("killed_repair.py")
    process = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def asked(**request: Any) -> dict[str, Any]:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(request, default=str) + "\n")
        process.stdin.flush()
        reply: dict[str, Any] = json.loads(process.stdout.readline())
        assert not reply.get("failed"), reply
        return reply

    with process:
        for name in SMALL:
            folder = tmp_path_factory.mktemp("warm")
            path = cases(name).lay(folder)
            warm = asked(do="warm", path=path, output=folder / "new", options={"to": "bare"})
            assert not warm["torch"], "the repair has imported torch"
        yield asked


class SelfTestResult:
    """Runs one kind of repair again and again, each time on a fresh copy, and sees to what a kill leaves.

    With ``named``, new files have names before they are whole, as on a file system without O_TMPFILE.
    """

    def __init__(self, case: Case, ask: Ask, folder: Path, *, named: bool = False) -> None:
        """Take the case, and a folder to work in."""
        self.case = case
        self.named = named
        self._ask = ask
        self._folder = folder
        self._count = 0
        self.seen: set[str] = set()  # which states were met: "old", "new"

    def place(self) -> Path:
        """Return an empty folder."""
        self._count += 1
        place = self._folder / str(self._count)
        place.mkdir()
        return place

    def in_place(self, die: Any = ("", None), do: str = "repair", path: Path | None = None) -> tuple[Path, bool]:
        """Run it on the checkpoint in place; give the path, and whether it was killed."""
        path = path or self.case.lay(self.place())
        options = {**self.case.options, "in_place": True}
        reply = self._ask(do=do, path=path, options=options, die=die, named=self.named)
        assert "refused" not in reply or do == "undo", reply
        return path, reply["killed"]

    def measure(self, how: str, do: str = "repair", **options: Any) -> dict[str, Any]:
        """Run it to its end, and say what it did."""
        path = self.case.lay(self.place())
        if do == "undo":
            checkpoint.repair(path, in_place=True, **self.case.options)
        options = options or {"in_place": True}
        output = path.with_name("out" + path.suffix) if "in_place" not in options else None
        options = {**self.case.options, **options}
        return self._ask(do=do, path=path, output=output, options=options, die=(how, None), named=self.named)

    def look(self, path: Path) -> str:
        """See that the checkpoint loads as the old or as the new one; say which."""
        file = checkpoint.inspect(path)
        assert (file.damage, file.opaque) == ("", "")
        found = self.case.state(path)
        which = {text_of(self.case.old): "old", text_of(self.case.new): "new"}.get(text_of(found))
        assert which, f"a mixture: {list(found)[:8]}"
        assert {key for each in file.state_dicts for key in each.keys} == set(found)
        self.seen.add(which)
        return which

    def go_on(self, path: Path, *, repair: bool) -> None:
        """See that the next repair, and the next undo, work after a kill, and that they leave nothing behind."""
        before = self.look(path)
        if repair:
            checkpoint.repair(path, in_place=True, **self.case.options)
            assert self.look(path) == "new"
            self.assert_tidy(path, journal=True)
            checkpoint.undo(path)
        else:
            try:
                checkpoint.undo(path)
            except BadTarget:  # it was killed before it had begun: there is nothing to take back
                assert before == "old"
        self.assert_tidy(path, journal=False)

    def assert_tidy(self, path: Path, *, journal: bool) -> None:
        """See that there is no file but those of the checkpoint, and a journal where one is due."""
        found = tree(path.parent)
        if not journal:
            assert found == self.case.files
        assert {name for name in found if not name.endswith(JOURNAL)} == set(self.case.files)


def dice(seed: int) -> random.Random:
    """Return numbers that are the same in each run, so that a failure comes back."""
    return random.Random(seed)  # noqa: S311 - no secret depends on them


def text_of(state: Tensors) -> str:
    """Return a text that is the same for the same tensors; safetensors gives them in any order."""
    return repr(sorted(state.items()))


@pytest.fixture
def trial(cases: Callable[[str], Case], ask: Ask, tmp_path: Path) -> Callable[..., SelfTestResult]:
    """Return a trial of the case of a name."""
    return lambda name, **how: SelfTestResult(cases(name), ask, tmp_path, **how)


@pytest.mark.parametrize(
    ("name", "named"), [*((name, False) for name in SMALL), ("legacy", True), ("safetensors", True)]
)
def test_killed_at_any_call_that_changes_files(
    trial: Callable[..., SelfTestResult],
    name: str,
    named: bool,  # noqa: FBT001
) -> None:
    """Before and after each call of C that can change a file, by whatever object, the file is the old or the new."""
    each = trial(name, named=named)
    events = each.measure("event")["events"]
    assert events > 4

    for number in range(1, events + 1):
        path, killed = each.in_place(("event", number))
        assert killed
        each.go_on(path, repair=bool(number % 2))

    assert each.seen == {"old", "new"}


def test_killed_within_any_write(trial: Callable[..., SelfTestResult]) -> None:
    """A write that SIGKILL ends at the boundary of a page, where the kernel does end it, tears nothing."""
    each = trial("large zip")  # its writes have more than a page
    done = each.measure("call")
    assert "fsync" in done["names"]
    points = [point for point in done["points"] if point[1] == "within"]
    assert points

    for index, point in enumerate(points):
        path, killed = each.in_place(("call", point))
        assert killed
        assert each.look(path) == "old"
        each.go_on(path, repair=bool(index % 2))


@pytest.mark.parametrize("last", [True, False], ids=["the last write", "the first write"])
def test_a_write_that_a_power_failure_tears(tmp_path: Path, *, last: bool) -> None:
    """Of either write that decides which end counts, any part can have reached the disk: undo brings back all bytes."""
    import torch

    path = tmp_path / "last.pt"
    torch.save({"module.weight": torch.ones(2)}, path)
    before = path.read_bytes()
    checkpoint.repair(path, in_place=True)
    after, journal = path.read_bytes(), (tmp_path / f".last.pt.{JOURNAL}").read_bytes()
    step = read_runs(tmp_path / f".last.pt.{JOURNAL}")[-1][0]
    hole = before + bytes(step.start - step.size)

    for cut in range(len(step.old)):
        whole = after[: step.start] + step.new[:cut] + step.old[cut:]
        path.write_bytes(whole if last else hole + step.old[:cut])
        (tmp_path / f".last.pt.{JOURNAL}").write_bytes(journal)
        checkpoint.undo(path)
        assert path.read_bytes() == before, cut


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_random(trial: Callable[..., SelfTestResult], name: str) -> None:
    """After a delay of any number of microseconds, too, which lets the kernel end a call where it pleases."""
    each, draw = trial(name), dice(SEED)
    seconds = min(each.measure("")["seconds"] for _ in range(3))

    kills = 0
    for index in range(12 if name == "large zip" else 35):
        path, killed = each.in_place(("delay", draw.uniform(0, 1.3) * seconds))
        kills += killed
        if name == "sharded":  # several files are not one: what is in between is mended by the next run
            mend(each, path, repair=bool(index % 2))
        else:
            each.go_on(path, repair=bool(index % 2))

    assert kills > (2 if name == "large zip" else 10)


def mend(each: SelfTestResult, path: Path, *, repair: bool) -> None:
    """See that the next run makes the directory all new, or all old again."""
    if repair:
        checkpoint.repair(path, in_place=True, **each.case.options)
        assert each.look(path) == "new"
        each.assert_tidy(path, journal=True)
        checkpoint.undo(path)
    else:
        try:
            checkpoint.undo(path)
        except BadTarget:
            assert each.look(path) == "old"
    assert each.look(path) == "old"
    each.assert_tidy(path, journal=False)


def test_a_sharded_directory_killed_at_any_call(trial: Callable[..., SelfTestResult]) -> None:
    """Wherever the repair of several files ends, the next run makes all of them new, or all of them old."""
    each = trial("sharded")

    for index, point in enumerate(each.measure("call")["points"]):
        path, killed = each.in_place(("call", point))
        assert killed
        mend(each, path, repair=bool(index % 2))


@pytest.mark.parametrize("name", SMALL)
def test_an_undo_that_is_killed(trial: Callable[..., SelfTestResult], name: str) -> None:
    """Wherever an undo ends, the file is the old or the new, and the next undo, or a repair and an undo, end it."""
    each = trial(name)

    for index, point in enumerate(each.measure("call", do="undo")["points"]):
        path, _ = each.in_place()
        _, killed = each.in_place(("call", point), "undo", path)
        assert killed
        each.go_on(path, repair=bool(index % 2))


@pytest.mark.parametrize("name", SMALL)
def test_killed_again_and_again(trial: Callable[..., SelfTestResult], name: str) -> None:
    """One file outlives any sequence of killed repairs and killed undos, and comes back to its first bytes."""
    each, draw = trial(name), dice(SEED + 1)
    points = {do: each.measure("call", do=do)["points"] for do in ("repair", "undo")}
    path = each.case.lay(each.place())

    for _ in range(40):
        do = draw.choice(["repair", "undo"])
        each.in_place(("call", draw.choice(points[do])), do, path)
        each.look(path)

    each.go_on(path, repair=True)
    assert each.seen == {"old", "new"}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", NAMES[:5])
def test_an_output_is_absent_or_complete(
    trial: Callable[..., SelfTestResult],
    ask: Ask,
    name: str,
    force: bool,  # noqa: FBT001
) -> None:
    """Killed at any call and within any write, -o leaves no output or all of it; the next run cleans up."""
    each = trial(name, named=force)
    case, draw = each.case, dice(SEED + 2)
    measured = each.measure("call", force=force)
    deaths: list[Any] = [("call", point) for point in measured["points"]]
    deaths += [("delay", draw.uniform(0, 1.3) * measured["seconds"]) for _ in range(10)]

    for death in deaths:
        path = case.lay(each.place())
        out = path.with_name("out" + path.suffix)
        if force and path.is_file():
            out.write_bytes(path.read_bytes())  # an older output, which is to be replaced at once
        ask(do="repair", path=path, output=out, options={**case.options, "force": force}, die=death, named=each.named)

        assert {name: data for name, data in tree(path.parent).items() if name in case.files} == case.files
        if out.exists():
            state = case.state(out)
            assert text_of(state) in {text_of(case.new), text_of(case.old) if force else ""}
        elif force and path.is_file():
            raise AssertionError("the older output is lost")
        if path.is_dir() and out.exists():
            shutil.rmtree(out)  # which is never replaced
        checkpoint.repair(path, out, force=True, **case.options)
        assert text_of(case.state(out)) == text_of(case.new)
        assert {each.name for each in path.parent.iterdir()} == {path.name, out.name}


def test_the_new_end_lies_within_one_page(trial: Callable[..., SelfTestResult]) -> None:
    """Whatever the size of the file, the bytes that switch to the new directory are in one page, so written at once."""
    import torch

    each = trial("zip")
    place = each.place()
    for size in range(0, 4200, 70):
        path = place / f"{size}.pt"
        torch.save({"module.a": torch.zeros(size, dtype=torch.uint8), "module.b": torch.ones(1)}, path)
        before = path.read_bytes()
        checkpoint.repair(path, in_place=True)
        data = path.read_bytes()
        end = data.rfind(b"PK\5\6")
        first = end - 20 if data[end - 20 : end - 16] == b"PK\6\7" else end
        assert first // 4096 == (len(data) - 1) // 4096
        assert struct.unpack_from("<H", data, end + 20) == (0,)
        checkpoint.undo(path)
        assert path.read_bytes() == before
