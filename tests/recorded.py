"""Recorded runs: ``python tests/recorded.py`` runs again what the documents show, and writes what is printed.

Between ``<!-- recorded -->`` and ``<!-- /recorded -->`` a page shows commands, each in a line that begins with ``$``,
and their output. They are run in a copy of ``docs/demo``, those of one recording one after the other.
``<!-- keep SCRIPT -->`` above a block keeps what ``sed -n SCRIPT`` does of an output: a launcher says much besides.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from documents import PAGES, RECORDED, ROOT

DEMO = ROOT / "docs/demo"
SHOWN = "/tmp/ddp-demo"  # noqa: S108 - as long as the names that mkdtemp makes, so lines are wrapped alike
BLOCK = re.compile(r"(?:<!-- keep (?P<keep>.+) -->\n+)?^```\n(?P<text>\$ .*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n", re.MULTILINE)
NEXT = "=== the next command ==="
INHERITED = ("HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
DEADLINE = 100.0
BESIDE = Path(sys.executable).parent


def run_again(page: str) -> str:
    """Return a page with its recorded runs made anew."""
    return RECORDED.sub(lambda recording: made_anew(recording[0]), page)


def made_anew(recording: str, programs: Path = BESIDE) -> str:
    """Return a recording with the output that its commands have now; ``programs`` holds ddpdoctor and torchrun."""
    folder = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))
    try:
        shutil.copytree(DEMO, folder, dirs_exist_ok=True)
        return BLOCK.sub(lambda block: _block(block, folder, programs), recording)
    finally:
        shutil.rmtree(folder)


def _block(block: re.Match[str], folder: Path, programs: Path) -> str:
    commands = COMMAND.findall(block["text"])
    shown = zip(commands, _outputs(commands, block["keep"], folder, programs), strict=True)
    text = "".join(f"$ {command}\n{output}" for command, output in shown)
    return block[0].replace(block["text"], text)


def _outputs(commands: list[str], keep: str | None, folder: Path, programs: Path) -> Iterator[str]:
    """Run commands in one shell, so that ``echo $?`` is what it says, and yield what each prints."""
    script = "".join(f'status=$?; echo "{NEXT}"; (exit $status)\n{command}\n' for command in commands)
    environ = {name: value for name, value in os.environ.items() if name in INHERITED}
    path = f"{programs}:{BESIDE}:{os.environ['PATH']}"
    environ |= {"PATH": path, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    for output in done.stdout.replace(str(folder), SHOWN).split(f"{NEXT}\n")[1:]:
        kept = output if keep is None else subprocess.check_output(["sed", "-n", keep], input=output, text=True)
        yield re.sub(r"[ \t]+$", "", kept, flags=re.MULTILINE)


def alike(recording: str) -> str:
    """Return a recording without what differs from run to run and from machine to machine."""
    return " ".join(re.sub(r"\d+\.\d+|\b\d+(?= s\b)", "0", recording).split())


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(run_again(path.read_text()))
