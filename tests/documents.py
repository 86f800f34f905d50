"""What the documents hold: files to write, commands to run, and runs that were recorded."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / ".github/CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LISTS = [ROOT / "checks/README.md", ROOT / "fixtures/README.md"]

BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`(?P<path>[^`\n]+)`:\n\n(?=```)", re.MULTILINE)
IN_A_BLOCK = re.compile(r"(?:^|\| )(?:\w+=\S+ )*ddpdoctor (.+)$", re.MULTILINE)
IN_A_LINE = re.compile(r"`ddpdoctor (\w[^`]*)`")
RECORDED = re.compile(r"<!-- recorded -->.*?<!-- /recorded -->", re.DOTALL)


def between(page: str, heading: str, following: str) -> str:
    """Return the part of a page from one heading to another; those of an example's own page are in between."""
    return page.partition(f"\n## {heading}\n")[2].partition(f"\n## {following}\n")[0]


def files(text: str) -> dict[str, str]:
    """Return the files that a text shows whole, each below its path."""
    shown = ((each["path"], BLOCK.match(text, each.end())) for each in FILE.finditer(text))
    return {path: block["text"] for path, block in shown if block}


def shell(text: str) -> list[str]:
    """Return the blocks of a text that are to be run: those of no language."""
    return [each["text"] for each in BLOCK.finditer(text) if not each["kind"]]


def ddpdoctor_commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each ddpdoctor command in a text's blocks, and in its lines; not of recorded ones."""
    text = RECORDED.sub("", text)
    blocks = "\n".join(shell(text)).replace("\\\n", " ")
    for command in (*IN_A_BLOCK.findall(blocks), *IN_A_LINE.findall(text)):
        yield shlex.split(re.split(r" (?:\||>|2>&1) ", command)[0], comments=True)
