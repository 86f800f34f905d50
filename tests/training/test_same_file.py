"""Which data sets read the same file for each item, and which read another one, or read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ddpdoctor.checks.performance.waiting._same_file import SameFile, same_file

if TYPE_CHECKING:
    from pathlib import Path

MARK = "  # here"


def data_set(*lines: str, name: str = "__getitem__(self, i)", before: str = "", after: str = "") -> str:
    """Return a data set whose method has these lines."""
    body = "\n".join(f"        {line}" for line in lines)
    return (
        "import json, os, functools\nimport pandas as pd\nimport h5py\nfrom pathlib import Path\n"
        f"{before}\nclass Data:\n    def __init__(self, root, paths):\n        self.root, self.paths = root, paths\n"
        f"        self.table = None\n    def {name}:\n{body}\n{after}\n"
    )


def at(tmp_path: Path, source: str) -> SameFile | None:
    """Return what is found at the line that is marked."""
    (file := tmp_path / f"{len(source)}.py").write_text(source)  # no two of a test are as long
    return same_file(str(file), next(at for at, line in enumerate(source.splitlines(), 1) if MARK in line))


SAME = [
    data_set("with open(f'{self.root}/a.json') as f:", "    table = json.load(f)  # here", "return table[i]"),
    data_set("with open(f'{self.root}/a.json') as f:  # here", "    table = json.load(f)", "return table[i]"),
    data_set("lines = open(self.root).read().splitlines()  # here", "return lines[i]"),
    data_set("return json.loads(Path(self.root).read_text())[i]  # here"),
    data_set("path = os.path.join(self.root, 'a.csv')", "return pd.read_csv(path).iloc[i]  # here"),
    data_set("for n, line in enumerate(open(self.root)):", "    parts = line.split(',')  # here", "return parts"),
    data_set("with h5py.File(self.root) as f:  # here", "    return f['x'][i]"),
    data_set("return table(self.root)[i]", before="def table(path):\n    return json.load(open(path))  # here"),
    data_set("return self.all()[i]", after="    def all(self):\n        return pd.read_csv('a.csv')  # here"),
]
OTHERS = [
    data_set("return json.load(open(self.paths[i]))  # here"),
    data_set("with open(f'{self.root}/{i}.json') as f:", "    return json.load(f)  # here"),
    data_set("path = self.paths[i]", "return Path(path).read_text()  # here"),
    data_set("if self.table is None:", "    self.table = pd.read_csv(self.root)  # here", "return self.table[i]"),
    data_set("with open(self.root, 'rb') as f:", "    f.seek(i * 64)", "    return f.read(64)  # here"),
    data_set("with h5py.File(self.root) as f:", "    return f['x'][i]  # here"),
    data_set("for line in open(self.root):", "    yield line.split(',')  # here", name="__iter__(self)"),
    data_set("return pd.read_csv(self.root, skiprows=i, nrows=1)  # here"),
    data_set("self.root = self.paths[i]", "return open(self.root).read()  # here"),
    data_set("return table(self.paths[i])", before="def table(path):\n    return json.load(open(path))  # here"),
    data_set("return 1", after="    def all(self):\n        return pd.read_csv('a.csv')  # here"),
    data_set("open('log.txt', 'a').write('x')  # here"),
    data_set("return 1  # here"),
]


@pytest.mark.parametrize("source", SAME)
def test_the_same_file_for_each_item_is_found(tmp_path: Path, source: str) -> None:
    """Read or opened, in the method or in a function that it calls."""
    assert at(tmp_path, source) is not None


@pytest.mark.parametrize("source", OTHERS)
def test_other_files_and_what_is_read_once_are_left_alone(tmp_path: Path, source: str) -> None:
    """One file an item, a part of a file, a first read under a condition, a pass over the lines."""
    assert at(tmp_path, source) is None


def test_the_line_moves_where_it_is_complete(tmp_path: Path) -> None:
    """Into ``__init__``; a function is cached; nothing is shown where a name would be missing there."""
    diffs = [found.diff for source in SAME if (found := at(tmp_path, source)) is not None]
    assert diffs[0].splitlines() == [
        " def __init__(...):", "+    with open(f'{self.root}/a.json') as f:", "+        self.table = json.load(f)",
        " def __getitem__(...):", "-    with open(f'{self.root}/a.json') as f:", "-        table = json.load(f)",
        "+    table = self.table",
    ]  # fmt: skip
    assert diffs[2].splitlines()[1] == "+    self.lines = open(self.root).read().splitlines()"
    assert diffs[4] == diffs[6] == ""
    assert diffs[7] == "+@functools.cache\n def table(path):"
