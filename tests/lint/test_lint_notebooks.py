"""Notebooks: one module of all code cells; a finding is told by cell and line."""

from __future__ import annotations

import json

import pytest
from helpers import CHECKS

from ddpdoctor.facets import Instrument
from ddpdoctor.lint import LIKELY
from ddpdoctor.lint.run import Wanted, lint_text

ALL = Wanted(tuple(check for check in CHECKS if check.of(Instrument.LINT)), confidence=LIKELY)


def notebook(*cells: str, language: str = "python") -> bytes:
    """Return a notebook; a cell that begins with # is prose."""
    made = [
        {"cell_type": "markdown" if text.startswith("# ") else "code", "source": text.splitlines(keepends=True)}
        for text in cells
    ]
    return json.dumps({"cells": made, "metadata": {"kernelspec": {"language": language}}, "nbformat": 4}).encode()


def test_names_hold_from_cell_to_cell_and_a_finding_has_cell_and_line() -> None:
    """Prose counts as a cell, as it does for a reader; magics and shell lines are passed over."""
    data = notebook(
        "# Training",
        "%matplotlib inline\n!pip install torch\nimport os\nimport torch.distributed as dist",
        "%%bash\nif [ ( ; then",
        'if True:\n    %time dist.barrier()\nfiles = !ls\ndist?\nif os.environ["RANK"] == 0:\n    print("first")',
    )
    (found,) = lint_text("train.ipynb", data, ALL).found

    assert (found.check.slug, str(found.finding.place)) == ("variable-is-text", "train.ipynb:cell 4:5:4")
    assert [each.source for each in found.finding.evidence] == ["cell 4, line 5"]
    assert not found.finding.fix.edits, "the file is JSON"


def test_a_comment_keeps_a_line_of_a_cell_quiet() -> None:
    """As in a script."""
    text = 'import os, torch.distributed\nif os.environ["RANK"] == 0:  # noqa: DDP120\n    pass'

    assert not lint_text("train.ipynb", notebook(text), ALL).found


@pytest.mark.parametrize(
    "data",
    [
        notebook("import torch.distributed as dist\nx = ("),
        notebook("import torch.distributed", language="julia"),
        b'{"cells": 3, "torch": "distributed"}',
        b'["torch", "distributed"]',
        b"torch distributed",
        b'{"cells": [{"cell_type": "code"}], "torch": "distributed"}',
    ],
    ids=["no Python", "Julia", "no cells", "a list", "no JSON", "no source"],
)
def test_what_is_no_notebook_of_python_says_nothing(data: bytes) -> None:
    """Neither a fault nor a crash."""
    done = lint_text("train.ipynb", data, ALL)

    assert (done.found, done.faults, done.crashes) == ((), (), ())
