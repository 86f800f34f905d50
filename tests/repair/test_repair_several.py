"""Several checkpoints are repaired all, or none of them is; a file gets no name that promises another format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ddpdoctor import BadTarget, checkpoint
from ddpdoctor.checkpoint.rename import several
from ddpdoctor.checkpoint.rename.repair import carried_out
from ddpdoctor.cli import cli

Shot = dict[str, bytes]


def run(*args: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(cli, [str(each) for each in args], catch_exceptions=False)


def shot(folder: Path) -> Shot:
    """Return the names and bytes of all files below a folder, and the names of its folders."""
    return {str(path.relative_to(folder)): b"" if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


def state() -> dict[str, Any]:
    """Return a state dict of DDP."""
    import torch

    return {"module.a": torch.zeros(2, 3), "module.b": torch.ones(1)}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a folder of three checkpoints; the name of the last begins with a z."""
    import torch

    folder = tmp_path / "runs"
    folder.mkdir()
    for name in ("first.pt", "second.pt", "zed.pt"):
        torch.save(state(), folder / name)
    return folder


def keys(path: Path) -> tuple[str, ...]:
    """Return the keys of the first state dict."""
    return checkpoint.inspect(path).state_dicts[0].keys


def test_all_of_them(tmp_path: Path, runs: Path) -> None:
    """A folder's checkpoints are copied into a folder, or changed in place, and taken back, with one command."""
    before = shot(runs)
    assert run("repair", runs, "-o", tmp_path / "out").exit_code == 0
    assert [keys(path) for path in sorted((tmp_path / "out").iterdir())] == [("a", "b")] * 3

    assert run("repair", runs, "--in-place").exit_code == 0
    assert {keys(path) for path in runs.glob("*.pt")} == {("a", "b")}
    assert run("repair", runs, "--undo").exit_code == 0
    assert shot(runs) == before


def of_a_trainer(folder: Path) -> None:
    """Save what the transformers Trainer resumes from: weights, and states in files of their own."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    save_file(state(), folder / "model.safetensors")
    torch.save(
        {"state": {0: {"exp_avg": torch.ones(2, 3)}}, "param_groups": [{"params": [0]}]}, folder / "optimizer.pt"
    )
    torch.save({"last_epoch": 3}, folder / "scheduler.pt")
    torch.save({"cpu": torch.get_rng_state()}, folder / "rng_state_0.pth")
    (folder / "trainer_state.json").write_text('{"global_step": 3}')


def test_states_beside_the_weights_stay(tmp_path: Path) -> None:
    """Of a framework's folder the weights are repaired; the optimizer and what else has no state dict is left alone."""
    folder = tmp_path / "checkpoint-3"
    of_a_trainer(folder)
    before = shot(folder)
    copied = run("repair", folder, "-o", tmp_path / "out")
    assert (copied.exit_code, keys(tmp_path / "out/model.safetensors")) == (0, ("a", "b"))
    assert (
        "left alone, as no state dict of a model is in it: optimizer.pt, rng_state_0.pth, scheduler.pt" in copied.output
    )

    assert run("repair", folder, "--in-place").exit_code == 0
    assert keys(folder / "model.safetensors") == ("a", "b")
    assert {name for name, data in shot(folder).items() if before.get(name) != data} - {
        name for name in shot(folder) if name.startswith(".")
    } == {"model.safetensors"}
    assert run("repair", folder, "--undo").exit_code == 0
    assert keys(folder / "model.safetensors") == ("module.a", "module.b")


def test_states_alone_are_refused(tmp_path: Path) -> None:
    """A folder in which no file has a state dict is no success: each file says so, with exit status 2."""
    folder = tmp_path / "checkpoint-3"
    of_a_trainer(folder)
    (folder / "model.safetensors").unlink()
    refused = run("repair", folder, "--in-place")
    assert (refused.exit_code, "optimizer.pt cannot be repaired: it holds dict of 2" in refused.output) == (2, True)


def test_a_second_name_in_the_folder(tmp_path: Path) -> None:
    """A link to a file beside it, as Lightning's last.ckpt is, is that file, and no second one."""
    import torch

    torch.save({"state_dict": state()}, tmp_path / "epoch=1.ckpt")
    (tmp_path / "last.ckpt").symlink_to("epoch=1.ckpt")
    assert run("repair", tmp_path, "--in-place").exit_code == 0
    assert keys(tmp_path / "last.ckpt") == ("a", "b")
    assert (tmp_path / "last.ckpt").is_symlink()


@pytest.mark.parametrize(("named", "out"), [("one", "out"), ("one", "out/"), ("one/model.pt", "out/")])
def test_the_copy_of_a_folders_only_file(tmp_path: Path, named: str, out: str) -> None:
    """A folder's copy is a folder, with one checkpoint in it, too; so is what is written with a slash at its end."""
    import torch

    (tmp_path / "one").mkdir()
    torch.save(state(), tmp_path / "one/model.pt")
    assert run("repair", tmp_path / named, "-o", f"{tmp_path}/{out}").exit_code == 0
    assert keys(tmp_path / "out/model.pt") == ("a", "b")


def test_the_copy_of_a_folder_has_what_it_needs_to_be_loaded(tmp_path: Path) -> None:
    """Configuration, tokens and code of its own are beside the weights in the copy."""
    import torch

    (tmp_path / "one").mkdir()
    torch.save(state(), tmp_path / "one/pytorch_model.bin")
    for name in ("config.json", "vocab.txt", "modeling_own.py"):
        (tmp_path / "one" / name).write_text(name)
    torch.save({"state": {}}, tmp_path / "one/optimizer.pt")
    assert run("repair", tmp_path / "one", "-o", tmp_path / "out").exit_code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "pytorch_model.bin", "config.json", "vocab.txt", "modeling_own.py"
    }  # fmt: skip
    assert (tmp_path / "out/config.json").read_text() == "config.json"


def test_the_copy_of_a_folders_only_file_by_name(tmp_path: Path, runs: Path) -> None:
    """An output that is called as a checkpoint is one."""
    for path in sorted(runs.iterdir())[1:]:
        path.unlink()
    assert run("repair", runs, "-o", tmp_path / "bare.pt").exit_code == 0
    assert keys(tmp_path / "bare.pt") == ("a", "b")


def broken(path: Path) -> None:
    """Cut the file off."""
    path.write_bytes(path.read_bytes()[:-30])


def half(path: Path) -> None:
    """Save a state dict with half a prefix."""
    import torch

    torch.save({**state(), "c": torch.ones(1), "d": torch.ones(1)}, path)


def read_only(path: Path) -> None:
    """Take the permission to write away."""
    path.chmod(0o444)


SPOILED = {"broken": broken, "half": half, "read-only": read_only}


@pytest.mark.parametrize("name", SPOILED)
@pytest.mark.parametrize("way", ["--in-place", "-o", "--undo"])
def test_one_that_is_refused_keeps_all_as_they_are(tmp_path: Path, runs: Path, name: str, way: str) -> None:
    """All are looked at first; with one that is refused, no file is changed, and no folder of copies is left."""
    if way == "--undo":
        checkpoint.repair(runs / "first.pt", in_place=True)
    SPOILED[name](runs / "zed.pt")
    before = shot(tmp_path)
    said = run("repair", runs, way, *([tmp_path / "out"] if way == "-o" else []))

    if (name, way) == ("read-only", "-o"):
        assert said.exit_code == 0
        return
    assert said.exit_code == 2
    assert "zed.pt" in said.output
    assert said.output.endswith("none of the 3 checkpoints was changed\n")
    assert shot(tmp_path) == before


@pytest.mark.parametrize("in_place", [True, False])
def test_one_that_fails_takes_the_others_back(
    tmp_path: Path,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_place: bool,  # noqa: FBT001
) -> None:
    """What nobody foresaw, such as a full disk, leaves none of them changed, either."""
    before = shot(tmp_path)

    def failing(path: str, *args: Any) -> Any:
        if path.endswith("zed.pt"):
            raise BadTarget("zed.pt: No space left on device; nothing was changed")
        return carried_out(path, *args)

    monkeypatch.setattr(several, "carried_out", failing)
    said = run("repair", runs, *(["--in-place"] if in_place else ["-o", tmp_path / "out"]))

    assert said.exit_code == 2
    assert shot(tmp_path) == before


def test_one_named_twice_and_copies_of_one_name(tmp_path: Path, runs: Path) -> None:
    """The same file twice, and two copies of one name, are refused before anything is done."""
    other = tmp_path / "other"
    shutil.copytree(runs, other)
    before = shot(tmp_path)

    twice = run("repair", runs / "first.pt", other / ".." / "runs" / "first.pt", "--in-place", "--strip", "module.")
    same = run("repair", runs / "first.pt", other / "first.pt", "-o", tmp_path / "out")

    assert (twice.exit_code, same.exit_code) == (2, 2)
    assert "is named twice" in twice.output
    assert "several copies would be called" in same.output
    assert shot(tmp_path) == before


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Return a folder with a checkpoint in two shards of safetensors, the same of torch, and one file more."""
    import torch
    from safetensors.torch import save_file

    folder = tmp_path / "shards"
    folder.mkdir()
    for form, write in (("safetensors", save_file), ("bin", torch.save)):
        weight_map = {}
        for number, (key, value) in enumerate(state().items()):
            weight_map[key] = f"model-{number}.{form}"
            write({key: value}, folder / weight_map[key])
        (folder / f"model.{form}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    torch.save(state(), folder / "ema.pt")
    return folder


def test_a_shard_is_not_changed_without_its_index(shards: Path) -> None:
    """One shard alone is refused in place, with the index to name; of a folder's checkpoints, the indices are taken."""
    before = shot(shards)
    for name in ("model-0.safetensors", "model-1.bin"):
        said = run("repair", shards / name, "--in-place")
        assert said.exit_code == 2
        assert f"is a shard of {shards / 'model.'}{name.split('.')[1]}.index.json: repair that" in said.output
        assert shot(shards) == before

    assert run("repair", shards, "--in-place").exit_code == 0
    for name in ("model.safetensors.index.json", "model.bin.index.json", "ema.pt"):
        assert keys(shards / name) == ("a", "b")
    assert run("repair", shards, "--undo").exit_code == 0
    assert shot(shards) == before


@pytest.mark.parametrize(
    ("name", "out", "right"),
    [
        ("a.safetensors", "new.pt", "new.safetensors"),
        ("a.safetensors", "new.bin", "new"),
        ("folder", "new.pt", "new"),
    ],
)
def test_a_copy_is_not_called_as_another_format(tmp_path: Path, runs: Path, name: str, out: str, right: str) -> None:
    """What .safetensors hold is no torch file: one line that says what to call it."""
    from safetensors.torch import save_file

    save_file(state(), runs / "a.safetensors")
    (runs / "folder").mkdir()
    save_file(state(), runs / "folder" / "a.safetensors")
    index = {"weight_map": dict.fromkeys(state(), "a.safetensors")}
    (runs / "folder" / "model.safetensors.index.json").write_text(json.dumps(index))
    said = run("repair", runs / name, "-o", tmp_path / out)

    assert said.exit_code == 2
    assert len(said.output.splitlines()) == 1
    assert "give it a name" in said.output
    assert not (tmp_path / out).exists()
    assert run("repair", runs / name, "-o", tmp_path / right).exit_code == 0
    assert keys(tmp_path / right) == ("a", "b")
