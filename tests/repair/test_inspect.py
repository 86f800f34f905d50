"""``ddpdoctor inspect`` and ``ddpdoctor repair`` as commands: what they print, and their exit status."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ddpdoctor.checkpoint import CheckpointFile, inspect
from ddpdoctor.checkpoint.pickles.allowed import is_allowed
from ddpdoctor.cli import cli

Saved = dict[str, Path]


def run(*args: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(cli, [str(each) for each in args], catch_exceptions=False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Save a bare state dict, that of DDP alone and in a training state, one of other shapes, and a network's code."""
    import torch

    folder = tmp_path_factory.mktemp("saved")
    bare = OrderedDict(a=torch.zeros(2, 3), b=torch.zeros(4, dtype=torch.int64), c=torch.zeros(1))
    ddp = OrderedDict((f"module.{key}", value) for key, value in bare.items())
    other = OrderedDict(a=torch.zeros(2, 2), b=torch.zeros(4), d=torch.zeros(1))
    torch.save(bare, folder / "bare.pt")
    torch.save({"epoch": 3, "net": {"g": ddp, "d": bare}, "args": argparse.Namespace(lr=1)}, folder / "last.pt")
    torch.save(ddp, folder / "ddp.pt")
    torch.save(other, folder / "other.pt")
    (folder / "net.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a = torch.nn.Parameter(torch.zeros(2, 3))\n"
        "        self.register_buffer('b', torch.zeros(4, dtype=torch.int64))\n"
        "        self.c = torch.nn.Parameter(torch.zeros(1))\n\n\ndef build():\n    return Net()\n"
    )
    return {path.name: path for path in folder.iterdir()}


def test_it_tells_what_is_in_a_training_state(saved: Saved) -> None:
    """Format, sizes, dtypes, where each state dict stands, who left its prefix, what torch refuses, and the fix."""
    said = run("inspect", saved["last.pt"])

    assert said.exit_code == 0
    for part in (
        "torch zip archive",
        'ckpt["net"]["g"]: 3 tensors, 11 elements, 60 B: float32 2, int64 1',
        "module. on 3 of 3 keys: DataParallel or DistributedDataParallel",
        f"ddpdoctor repair {saved['last.pt']} -o {saved['last.pt'].with_name('last.bare.pt')}",
        "epoch: int",
        '["g"]: 3 tensors',
        "refused   argparse.Namespace",
    ):
        assert part in said.output


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("module.a", "b"), "before 1 of 2 keys, not before b"),
        (("module.a", "a"), "a is there with it and without it"),
        (("_orig_mod.a", "a"), "would both be called a"),
        (("module.", "module.a"), "would have no name left"),
    ],
)
def test_what_a_repair_refuses_is_told_before(tmp_path: Path, keys: tuple[str, str], said: str) -> None:
    """No command is offered that would be refused: the reason stands in its place, as repair gives it."""
    import torch

    torch.save(dict.fromkeys(keys, torch.ones(1)), tmp_path / "a.pt")
    told, refused = run("inspect", tmp_path / "a.pt"), run("repair", tmp_path / "a.pt", "--in-place")

    assert (told.exit_code, refused.exit_code) == (0, 2)
    assert said in " ".join(told.output.split())
    assert said in " ".join(refused.output.split())
    assert "ddpdoctor repair" not in told.output


def test_its_data_say_the_same(saved: Saved) -> None:
    """The JSON has all of it, the keys only when they are asked for."""
    told = json.loads(run("inspect", saved["last.pt"], "--format", "json").output)
    keys = json.loads(run("inspect", saved["last.pt"], "--format", "json", "--keys").output)

    assert told["format"] == "torch"
    assert [each["location"] for each in told["state_dicts"]] == [["net", "g"], ["net", "d"]]
    assert told["state_dicts"][0]["prefix"]["text"] == "module."
    assert "keys" not in told["state_dicts"][0]
    assert keys["state_dicts"][1]["keys"][0] == {"key": "a", "shape": [2, 3], "dtype": "float32", "sharded": False}
    assert {"name": "argparse.Namespace", "weights_only": False, "harm": ""} in told["globals"]


def test_the_names_that_torch_allows_are_the_installed_ones() -> None:
    """Whatever the installed torch allows is known to be allowed, and what runs code is not."""
    from torch import _weights_only_unpickler as allowing

    own = set(allowing._get_user_allowed_globals())  # type: ignore[no-untyped-call]
    assert {name for name in allowing._get_allowed_globals() if not is_allowed(name) and name not in own} == set()
    assert not any(map(is_allowed, ("os.system", "builtins.eval", "torch.load", "numpy.dtype", "torch.nn.Linear")))


def test_two_files_are_compared_key_by_key(saved: Saved) -> None:
    """What is same, renamed, missing, unexpected, of another shape or dtype; the status says whether it differs."""
    same = run("inspect", saved["bare.pt"], "--like", saved["bare.pt"])
    renamed = run("inspect", saved["ddp.pt"], "--like", saved["bare.pt"])
    other = json.loads(run("inspect", saved["bare.pt"], "--like", saved["other.pt"], "--format", "json").output)

    assert (same.exit_code, same.output) == (0, "ckpt beside other: 3 same\n")
    assert renamed.exit_code == 1
    assert "3 renamed" in renamed.output
    assert {row[0] for row in other[0]["keys"]} == {"shape", "dtype", "unexpected", "missing"}


def test_a_dry_run_shows_old_and_new_and_changes_nothing(saved: Saved) -> None:
    """Each key of each container is there; the file is not touched."""
    before = saved["last.pt"].read_bytes()
    said = run("repair", saved["last.pt"], "--dry-run")

    assert said.exit_code == 0
    assert "3 of 6 keys would be renamed" in said.output
    assert [line.split() for line in said.output.splitlines() if line.startswith("module.")] == [
        ["module.a", "a"],
        ["module.b", "b"],
        ["module.c", "c"],
    ]
    assert "assumed that no layer of the model itself is called module" in said.output
    assert saved["last.pt"].read_bytes() == before


def test_the_model_decides(saved: Saved, tmp_path: Path) -> None:
    """A factory's own keys are what the file gets; what does not fit is told, with status 1, and nothing is written."""
    code = f"{saved['net.py']}:build"
    good = run("repair", saved["ddp.pt"], "--model", code, "-o", tmp_path / "new.pt")
    bad = run("repair", saved["other.pt"], "--model", code, "-o", tmp_path / "bad.pt")

    assert (good.exit_code, inspect(tmp_path / "new.pt").state_dicts[0].keys) == (0, ("a", "b", "c"))
    assert bad.exit_code == 1
    assert "1 missing: c; 1 unexpected: d; 1 of another shape: a [2, 2] instead of [2, 3]" in bad.output
    assert not (tmp_path / "bad.pt").exists()


OPTIONS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "strip": (["--strip", "module"], ("a", "b", "c")),
    "add": (["--add", "net."], ("net.module.a", "net.module.b", "net.module.c")),
    "map": (["--map", "module=net", "--map", "net.c=last"], ("net.a", "net.b", "last")),
    "regex": (["--regex", r"^module\.(.)=\1\1"], ("aa", "bb", "cc")),
    "to": (["--to", "compile,ddp"], ("_orig_mod.module.a", "_orig_mod.module.b", "_orig_mod.module.c")),
    "all": (["--strip", "module.", "--regex", "a=x", "--map", "x=y", "--add", "m"], ("m.y", "m.b", "m.c")),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_each_way_to_say_it(saved: Saved, tmp_path: Path, name: str) -> None:
    """The options do what their help says, one after the other."""
    options, keys = OPTIONS[name]
    said = run("repair", saved["ddp.pt"], *options, "-o", tmp_path / "new.pt", "--format", "json")

    assert json.loads(said.output)["changed"] == 3
    assert inspect(tmp_path / "new.pt").state_dicts[0].keys == keys


@pytest.mark.parametrize("command", [["inspect", "{}"], ["repair", "{}", "--dry-run"], ["repair", "--help"]])
def test_torch_is_not_imported(saved: Saved, command: list[str]) -> None:
    """These commands start in a moment."""
    words = [word.format(saved["last.pt"]) for word in command]
    code = (
        "import sys\nfrom ddpdoctor.cli import cli\n"
        f"try: cli({words!r})\nexcept SystemExit as e: assert not e.code\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.DEVNULL)


def test_a_terminal_is_not_told_what_a_key_says(tmp_path: Path) -> None:
    """Control characters in keys are shown as escapes."""
    import torch

    torch.save({"module.\x1b[31mred": torch.zeros(1)}, tmp_path / "a.pt")
    said: Any = run("repair", tmp_path / "a.pt", "--dry-run").output
    assert "\x1b" not in said
    assert "\\x1b[31mred" in said


def test_what_is_damaged_is_said_with_status_two(saved: Saved, tmp_path: Path) -> None:
    """Inspect describes it, and its status tells."""
    path = tmp_path / "cut.pt"
    path.write_bytes(saved["bare.pt"].read_bytes()[:-10])
    said = run("inspect", path)

    assert said.exit_code == 2
    assert "broken" in said.output
    assert isinstance(inspect(path), CheckpointFile)


@pytest.mark.parametrize("bytes_of_the_header", [slice(0, 4), slice(26, 30)])
def test_a_record_whose_own_header_is_destroyed_is_damage(
    saved: Saved, tmp_path: Path, bytes_of_the_header: slice
) -> None:
    """Torch reads a tensor by the header that stands before it: the archive's directory alone is no proof."""
    path = tmp_path / "damaged.pt"
    data = bytearray(saved["bare.pt"].read_bytes())
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        offset = next(each.header_offset for each in archive.infolist() if each.filename.endswith("/data/0"))
    header = data[offset : offset + 30]
    header[bytes_of_the_header] = b"\xff" * 4
    data[offset : offset + 30] = header
    path.write_bytes(data)
    done = run("inspect", path)

    assert done.exit_code == 2
    assert "/data/0 does not " in done.output


def test_import_ddpdoctor_is_enough() -> None:
    """`ddpdoctor.checkpoint` and the watch are there after `import ddpdoctor`, and torch is not imported for it."""
    program = """
import sys, ddpdoctor
ddpdoctor.checkpoint.repair, ddpdoctor.checkpoint.inspect, ddpdoctor.checkpoint.undo
ddpdoctor.load_state_dict, ddpdoctor.install, ddpdoctor.uninstall
print("torch" in sys.modules)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert said.strip() == "False"
