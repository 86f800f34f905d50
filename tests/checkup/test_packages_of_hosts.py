"""What hosts compare of the packages that the training imports."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.cluster.cluster import Cluster
from ddpdoctor.cluster.compared import packages
from ddpdoctor.cluster.compared.packages import NO_VERSION, NOT_INSTALLED, packages_imported
from ddpdoctor.cluster.host import Host
from ddpdoctor.cluster.meet.serving import _essence
from ddpdoctor.engine import evaluate
from ddpdoctor.registry import find

TRAIN = """\
import os, torch
import first.part as part
from my_yaml import load
import nowhere, vendored
try:
    import optional
except ImportError:
    pass
import own
"""


def install(folder: Path, name: str, version: str, module: str) -> None:
    """Write what pip leaves of a package."""
    kept = folder / f"{name}-{version}.dist-info"
    kept.mkdir(parents=True)
    (kept / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (kept / "top_level.txt").write_text(f"{module}\n")
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text("")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a script beside a module of its own; what it imports is installed, vendored, or not there."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/train.py").write_text(TRAIN)
    (tmp_path / "work/own.py").write_text("import behind\ndef late():\n    import later\n")
    for name, version, module in (
        ("first", "1.2.3", "first"),
        ("My.YAML", "6", "my_yaml"),
        ("behind", "7", "behind"),
    ):
        install(tmp_path / "site-packages", name, version, module)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/vendored.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    packages._owners.cache_clear()
    return str(tmp_path / "work/train.py")


def test_versions_are_those_of_what_the_files_import(script: str) -> None:
    """Also behind a module beside the script; an import in a `try` or a function that is not there says nothing."""
    assert packages_imported([script, "--lr=1"]) == {
        "behind": "7", "first": "1.2.3", "my-yaml": "6", "nowhere": NOT_INSTALLED, "vendored": NO_VERSION
    }  # fmt: skip
    assert packages_imported(["train", "nowhere.py"]) == {}


def said(*hosts: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return what is told of hosts with these packages, with its severity and the command."""
    check = find(CHECKS, "packages-differ-between-hosts")
    assert check is not None
    cluster = Cluster(tuple(Host(name, packages=each) for name, each in zip("abc", hosts, strict=False)), len(hosts))
    found = evaluate(check, check.facets[0], {"cluster": cluster}.__getitem__).findings
    return [(str(each.severity or "warning"), each.message, each.fix.command) for each in found]


def test_only_what_ranks_have_to_share_is_a_warning() -> None:
    """A minor release of numpy, or any of tqdm, is a note; a package that is missing is an error."""
    assert said({"transformers": "4.57.1"}, {"transformers": "4.57.1"}) == []
    assert said({"transformers": "4.57.1"}, {"transformers": "4.40.2"}, {"transformers": "4.57.1"}) == [
        (
            "warning", "transformers differs: 4.57.1 on a, c; 4.40.2 on b",
            "pip install 'transformers==4.57.1'   # on b",
        )
    ]  # fmt: skip
    for older, severity in (("1.26.4", "warning"), ("2.3.0", "note")):
        assert [each[0] for each in said({"numpy": "2.4.6"}, {"numpy": older})] == [severity]
    assert [each[0] for each in said({"timm": "1.0.19", "tqdm": "4.67"}, {"timm": "1.0.20", "tqdm": "4.66"})] == [
        "note"
    ]


def test_a_package_that_one_host_lacks_is_an_error() -> None:
    """What is there without a version is no difference to one that has one."""
    (told,) = said({"timm": NOT_INSTALLED}, {"timm": "1.0.19"})
    assert told == (
        "error", "timm is not installed on host a, and the training imports it", "pip install 'timm==1.0.19'   # on a"
    )  # fmt: skip
    assert said({"mine": NO_VERSION}, {"mine": "1.0"}) == []
    assert [each[0] for each in said({"mine": NO_VERSION}, {"mine": NOT_INSTALLED})] == ["error"]


def test_what_is_compared_stays_with_the_host_that_compares() -> None:
    """Told to all, the settings and packages of hundreds of hosts would not go into a line."""
    told = _essence(Host("a", packages={"timm": "1"}, settings={"lr": "1"}, reads={"X": "1"}))
    assert (told.packages, told.settings, told.reads) == ({}, {}, {})
