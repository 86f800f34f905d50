from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from helpers import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import pytest

    tomllib = pytest.importorskip("tomli")


def test_the_wheel_holds_every_file_of_the_tree(tmp_path: Path) -> None:
    """No area, check, broken case, schema or C source is missing from what users install; pages for readers are."""
    built = Path(os.environ.get("DDPDOCTOR_WHEELS", tmp_path))  # .ci/run has built it already
    if built == tmp_path:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
        subprocess.run(command, check=True, capture_output=True)
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        packed = set(wheel.namelist())
    tree = {
        str(path.relative_to(ROOT)) if folder == "ddpdoctor" else f"ddpdoctor/{path.relative_to(ROOT)}"
        for folder in ("ddpdoctor", "checks", "fixtures")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != "README.md"
    }

    assert tree <= packed
    assert not {name for name in packed if name.startswith(("tests/", "checks/", "fixtures/")) or name.endswith(".md")}


def test_every_package_is_listed() -> None:
    """A new folder of ddpdoctor/ or checks/ is in pyproject.toml's list."""
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    there = {
        ".".join((["ddpdoctor"] if path.parts[0] != "ddpdoctor" else []) + list(path.parts))
        for folder in ("ddpdoctor", "checks", "fixtures")
        for path in [Path(folder), *(p.relative_to(ROOT) for p in (ROOT / folder).rglob("*"))]
        if (ROOT / path / "__init__.py").is_file()
    }

    assert there == listed


def test_the_top_level_holds_only_what_belongs_there() -> None:
    """The layout is fixed."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    top = {name.partition("/")[0] for name in listed}

    assert {name for name in top if not name.startswith(".")} <= {
        "CHANGELOG.md", "LICENSE", "README.md", "benchmarks", "checks", "constraints.txt", "ddpdoctor", "docs",
        "fixtures",
        "pyproject.toml", "tests",
    }  # fmt: skip
