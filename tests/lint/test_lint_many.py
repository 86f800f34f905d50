"""Many files: looked at in several processes, and not again while nothing has changed; the findings are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.facets import Instrument
from ddpdoctor.findings import Severity
from ddpdoctor.lint import LIKELY, look, run
from ddpdoctor.lint.cache import MOST_PROJECTS
from ddpdoctor.lint.files import find
from ddpdoctor.lint.outcome import Outcome, as_plain, from_plain
from ddpdoctor.lint.run import BROKEN_OFF, FEW, Linted, Wanted, lint
from ddpdoctor.selftest.result import fixture
from ddpdoctor.selftest.sources import programs

RULES = tuple(check for check in CHECKS if check.of(Instrument.LINT))
ALL = Wanted(RULES, confidence=LIKELY)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the first broken program of each rule, in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "project"
    for check in RULES:
        for name, text in next(programs(fixture(check, "broken.sources"))).files:
            path = root / check.slug / "a" / "b" / "c" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    monkeypatch.chdir(root)
    return root


def linted(*, cached: bool = True) -> Linted:
    """Look at all files of the current folder."""
    paths = find((".",), (), Path())
    assert len(paths) > FEW
    return lint(paths, ALL, cached=cached)


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that fills with the files that are looked at, in this process."""
    names: list[str] = []
    real = look.look

    def noted(name: str, data: bytes, work: look.Work) -> Outcome:
        names.append(Path(name).name)
        return real(name, data, work)

    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(look, "look", noted)
    return names


def test_several_processes_find_what_one_finds(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same order; what a process does not deliver is looked at by the first one."""
    assert project.is_dir()
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    alone = linted(cached=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    together = linted(cached=False)
    monkeypatch.setattr(look, "_tell", lambda *_: None)
    without = linted(cached=False)

    assert {each.check for each in alone.found} == {*RULES}
    assert alone == together == without


def test_what_has_not_changed_is_not_looked_at_again(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python file is, where it or one in its reach has changed; launch scripts ask for files, and always are."""
    names = asked(monkeypatch)
    first = linted()
    assert "train.py" in names
    names.clear()
    assert linted() == first
    assert "train.py" not in names

    changed = next(project.glob("set-epoch-not-called/a/b/c/train.py"))
    changed.write_text(
        changed.read_text().replace("import torch\n", "import torch\nimport helper\n\nTELL = helper.f\n", 1)
    )
    (changed.parent / "helper.py").write_text("def f(sampler, epoch):\n    pass\n")
    assert len(linted().found) == len(first.found)
    (changed.parent / "helper.py").write_text("def f(sampler, epoch):\n    sampler.set_epoch(epoch)\n")
    names.clear()
    after = linted()
    assert names.count("train.py") == 1
    assert len(after.found) < len(first.found)


@pytest.mark.parametrize("processors", [1, 3])
def test_what_was_found_is_kept_where_the_user_breaks_it_off(
    project: Path, monkeypatch: pytest.MonkeyPatch, processors: int
) -> None:
    """What is left is looked at the next time, and nothing else is."""
    assert project.is_dir()
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    paths = find((".",), (), Path())

    def break_off(done: int, whole: int) -> None:
        assert done <= whole == len(paths)
        if done > whole // 2:
            raise KeyboardInterrupt

    broken_off = lint(paths, ALL, cached=True, told=break_off)
    assert broken_off.files + broken_off.left == len(paths)
    assert broken_off.found
    assert broken_off.left
    assert broken_off.exit_status(Severity.ERROR) == BROKEN_OFF
    names = asked(monkeypatch)
    whole = linted()
    assert 0 < names.count("train.py") < sum(each.name == "train.py" for each in paths)
    assert whole == linted(cached=False)


def test_a_cache_that_is_broken_or_of_another_version_is_none(project: Path, tmp_path: Path) -> None:
    """Whatever stands in its file; it holds one file a project, and old ones are forgotten."""
    assert project.is_dir()
    first = linted()
    folder = tmp_path / "cache" / "ddpdoctor" / "lint"
    (file,) = folder.iterdir()
    held = json.loads(file.read_text())
    for number in range(MOST_PROJECTS + 3):
        (folder / f"{number}.json").write_text("{}")
    for text in ("", "[]", "{", '{"stamp": 1}', json.dumps({**held, "stamp": "other", "known": {}})):
        file.write_text(text)
        assert linted() == first
    assert len([*folder.iterdir()]) <= MOST_PROJECTS


def test_an_outcome_is_the_same_after_it_was_made_plain(project: Path) -> None:
    """Through JSON, with every field of a finding."""
    assert project.is_dir()
    found = linted(cached=False).found
    outcome = Outcome(is_parsed=True, found=found, faults=("x",), useless=((1, "y", frozenset({"z"})),))

    plain = json.loads(json.dumps(as_plain(outcome)))
    assert from_plain(plain, {each.code: each for each in RULES}) == outcome


@pytest.mark.usefixtures("project")
def test_a_cache_of_other_checks_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file of any package of checks has changed, one that checks share too, all is looked at anew."""
    shared = tmp_path / "plugin" / "_shared.py"
    shared.parent.mkdir()
    shared.write_text("LIMIT = 1\n")
    monkeypatch.setattr(run, "folders", lambda: [str(shared.parent)])
    linted()
    names = asked(monkeypatch)
    linted()
    assert not names
    shared.write_text("LIMIT = 12\n")
    linted()
    assert len(names) >= len(RULES)


def test_the_folders_of_checks_are_known_unloaded() -> None:
    """Which folders hold checks is said without loading them: lint forgets the modules that it reads."""
    said = (
        "import sys; from ddpdoctor.registry import folders; print(*folders(), 'ddpdoctor.checks.host' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    *found, loaded = done.stdout.split()
    assert any((Path(each) / "host").is_dir() for each in found)
    assert loaded == "False"


def test_a_rank_that_goes_through_many_calls_is_followed(tmp_path: Path) -> None:
    """Each of seven functions hands it on in six calls, out of three assignments: asked once, they are few."""
    text = ["import torch.distributed as dist"]
    for at in range(6):
        text += [f"def f{at}(rank, a):", "    r = rank", "    if a: r = int(rank)", "    if not a: r = rank"]
        text += [f"    f{at + 1}(r, a)"] * 6
    text += ["def f6(rank, a):", "    if rank > 0:", "        dist.barrier()"]
    path = tmp_path / "train.py"
    path.write_text("\n".join([*text, "dist.init_process_group('gloo')", "f0(dist.get_rank(), 1)"]))

    told = lint([path], ALL, cached=False)

    assert told.faults == ()
