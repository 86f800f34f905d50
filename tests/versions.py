"""Tries ddpdoctor with other versions of Python and torch, and prints the rows of the table in docs/versions.md.

    python tests/versions.py FOLDER 3.11:2.2.2 3.13:2.15.0 [--selftest-only]

Each pair gets a virtual environment in FOLDER (about 6 GB with a CUDA build; it runs without a GPU), which is kept for
the next time. ``python3.11`` and so on are looked for on the PATH.
"""

from __future__ import annotations

import argparse
import datetime as dt
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = (path for pattern in ("test_watch_*.py", "test_run.py") for path in ROOT.glob(f"tests/*/{pattern}"))
WATCH = sorted(str(path.relative_to(ROOT)) for path in FILES)
NUMPY_2 = (2, 3)  # the first torch that is built for numpy 2


def main() -> None:
    """Print a row for each pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pairs", nargs="+", metavar="PYTHON:TORCH")
    parser.add_argument("--selftest-only", action="store_true")
    given = parser.parse_args()
    for pair in given.pairs:
        version, torch = pair.split(":")
        python = environment(given.folder / f"python{version}-torch{torch}", version, torch)
        said = [selftest(python), "" if given.selftest_only else watch_tests(python)]
        today = dt.datetime.now(dt.timezone.utc).date()
        print(f"| {today} | {version} | {torch} | {' | '.join(said)} |", flush=True)  # noqa: T201 - a script


def environment(folder: Path, version: str, torch: str) -> str:
    """Make a virtual environment with this checkout, unless it is there, and return its Python."""
    python = str(folder / "bin/python")
    if not (folder / "complete").exists():
        subprocess.run([f"python{version}", "-m", "venv", "--clear", str(folder)], check=True)
        old = tuple(map(int, torch.split(".")[:2])) < NUMPY_2
        wanted = [f"torch=={torch}", *(["numpy<2"] if old else []), "-e", f"{ROOT}[test]"]
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
        (folder / "complete").touch()
    return python


def selftest(python: str) -> str:
    """Return the last line of the self-test."""
    done = _run([python, "-m", "ddpdoctor", "selftest"])
    return done.stdout.splitlines()[-1] if done.stdout else f"exit status {done.returncode}"


def watch_tests(python: str) -> str:
    """Return how many tests of the watch passed, and print those that did not."""
    done = _run([python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", *WATCH])
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED", "ERROR")):
            print(line, file=sys.stderr)  # noqa: T201 - a script
    counts = re.findall(r"\d+ (?:failed|passed|skipped|errors?)\b", done.stdout)
    return ", ".join(counts) or f"exit status {done.returncode}"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
