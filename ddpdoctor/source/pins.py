"""The versions of torch that a project says it is made for."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.across.project import Project

TELLS = re.compile(
    r"(?:readme|install|requirements|dependencies|environment|conda|env)[\w.-]*\.(?:md|rst|txt|in|ya?ml|sh)"
    r"|readme|setup\.(?:py|cfg)|pyproject\.toml|pipfile|[\w.-]*dockerfile[\w.-]*",
    re.IGNORECASE,
)
"""Names of files that say which versions a project needs."""
FOLDERS = ("requirements", "docker")
PIN = re.compile(
    r"(?<![\w-])(?:pytorch/pytorch:|(?:py)?torch(?!\d+\b(?!\.)))[`*\"]*\s*\(?(?:version\s*|ver\.?\s*|:)?"
    r"(?P<bounds>[=<>~!^]*\s*v?\d[\w.]*(?:\+\w+)?(?:\s*,\s*[=<>~!]+\s*\d[\w.]*)*)"
    r"(?P<open>\s*(?:\+|(?:or|and|/)?\s*(?:later|above|higher|newer|up)\b"
    r"|[ \t]*#[^\n]*\b(?:later|newer|higher|other)\b[^\n]*\b(?:ok|okay|fine|works?)\b))?",
    re.IGNORECASE,
)
"""Versions of torch in such a file: ``torch==1.8.1``, ``torch>=1.8,<2``, ``PyTorch 1.8``, ``PyTorch 1.8 or later``.

An environment that is called ``torch110`` names none.
"""
OLD = re.compile(
    r"(?<![\w.-])(?:python[=:/]=?3\.[5-7]\b|cudatoolkit==?(?:[89]|10|11\.[0-3])\b)(?![\d.]*\s*(?:\+|(?:or|and)\b))"
)
"""Versions of what torch 2 cannot be installed beside: a Python before 3.8, a CUDA before 11.4 of conda's."""
ARGUMENT = re.compile(r"^ARG[ \t]+(?P<name>\w+)=[\"']?(?P<value>[^\s\"']+)", re.MULTILINE)
"""A variable of a Dockerfile, with what it is where the build is told nothing else."""
BOUND = re.compile(r"(?P<how>[=<>~!^]*)\s*v?(?P<major>\d+)(?:\.(?P<minor>\d+))?")
OPEN = frozenset({">", ">=", "!=", "^"})
"""What newer versions fit as well."""


ESTIMATOR = re.compile(r"\bframework_version\\?[\"']?\s*[=:]\s*\\?[\"'](?P<major>\d+)\.(?P<minor>\d+)")
"""The version of torch that a notebook of SageMaker asks for."""
NEWEST = 99  # the minor version, where none is named


def is_made_before(project: Project, path: str, version: str) -> bool:
    """Whether the files near a script pin torch to versions before one, and none of them names that one or later."""
    found = [each for text in _texts(project, path) for each in _pinned(text)]
    major, _, minor = version.partition(".")
    return bool(found) and max(found) < (int(major), int(minor or 0))


def _texts(project: Project, path: str) -> Iterator[str]:
    for folder in project.own_folders(path):
        names = project.folders.listed(folder)
        told = [f"{folder}/{each}" for each in names if TELLS.fullmatch(each) or each.endswith(".ipynb")]
        for part in (each for each in FOLDERS if each in names):
            told += [f"{folder}/{part}/{each}" for each in project.folders.listed(f"{folder}/{part}")]
        yield from (project.text(os.path.normpath(each)) for each in told)


def _pinned(text: str) -> Iterator[tuple[int, int]]:
    """Yield the major and minor version of each pin of a text; none of one that newer versions fit as well."""
    yield from ((int(each["major"]), int(each["minor"])) for each in ESTIMATOR.finditer(text) if "PyTorch(" in text)
    if text.startswith("{"):
        return  # a notebook, whose cells say how it is run elsewhere
    given = {each["name"]: each["value"] for each in ARGUMENT.finditer(text)}
    text = re.sub(r"\$\{(\w+)\}", lambda match: given.get(match[1], match[0]), text) if given else text
    yield from ((1, NEWEST) for _ in OLD.finditer(text))
    for found in PIN.finditer(text):
        parts = [] if found["open"] else found["bounds"].split(",")
        bounds = filter(None, (BOUND.match(each.strip()) for each in parts))
        closed = [each for each in bounds if each["how"] not in OPEN]
        if closed:
            yield _last(closed[-1])


def _last(bound: re.Match[str]) -> tuple[int, int]:
    """Return the last version that a bound lets through."""
    major, minor = int(bound["major"]), int(bound["minor"] or NEWEST)
    if bound["how"] != "<":
        return major, minor
    return (major - 1, NEWEST) if minor in {0, NEWEST} else (major, minor - 1)
