"""Writes the pages that list checks and fixtures, and tables of docs/frameworks.md: ``python -m ddpdoctor.docs``."""

from __future__ import annotations

import ast
import csv
import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.areas import AREAS
from ddpdoctor.declaration import BUILT_IN
from ddpdoctor.registry import load_checks
from ddpdoctor.report.checks import found_by
from ddpdoctor.selftest import corpus, probes, sources

if TYPE_CHECKING:
    from ddpdoctor.facets import Check

ROOT = Path(__file__).parents[1]
WRITTEN = "<!-- Written by `python -m ddpdoctor.docs`: change that, not this. -->"
ON_FRAMEWORKS = "docs/frameworks.md"
TABLE = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- /table -->", re.DOTALL)
"""Tables of what was run with which version: each is declared in a file beside the page."""
ON_CHECKS = """\
One file is one check: its page, its declaration, and how each instrument recognises the fault. A file that begins with
an underscore is shared by its neighbours. `ddpdoctor explain CODE` prints a page, `ddpdoctor list` this table. How to
add a check: [CONTRIBUTING](../.github/CONTRIBUTING.md).

*Found by* names the commands that can see the fault, and what `check` cannot see it without: an option, or a GPU. An
*error* crashes, hangs or learns wrongly; a *warning* is usually wrong or slow; a *note* is good to know."""
ON_FIXTURES = """\
Each check has a folder of its name with a *broken case* and its *healthy twin*. Both are really run: `ddpdoctor
selftest` must find the fault in the one, and nothing in the other. The folders are installed with the package, so the
self-test works on every machine."""
BY_HAND = """\
In the checkout, an example of each kind. The last command works for all; `--verbose` shows the finding."""


def pages(checks: tuple[Check, ...]) -> dict[str, str]:
    """Return the text of each page, by its path in the checkout; of plug-ins they say nothing."""
    checks = tuple(check for check in checks if check.origin.startswith(f"{BUILT_IN}."))
    return {
        "checks/README.md": "\n".join(_of_checks(checks)) + "\n",
        "fixtures/README.md": "\n".join(_of_fixtures(checks)) + "\n",
        ON_FRAMEWORKS: TABLE.sub(_declared, (ROOT / ON_FRAMEWORKS).read_text(encoding="utf-8")),
    }


def _declared(mark: re.Match[str]) -> str:
    """Return a table as its file declares it, between the comments that name the file."""
    with (ROOT / "docs" / mark[1]).open(encoding="utf-8", newline="") as file:
        headers, *rows = map(tuple, csv.reader(file))
    return "\n".join((f"<!-- table: {mark[1]} -->", *_table(headers, rows), "<!-- /table -->"))


def _of_checks(checks: tuple[Check, ...]) -> Iterator[str]:
    yield from (WRITTEN, "", f"# The {len(checks)} checks", "", ON_CHECKS)
    for area in AREAS:
        rows = [_row(check) for check in checks if check.area == area.name]
        if rows:
            yield from ("", f"## {area.name}: {area.title}", "")
            yield from _table(("code", "check", "severity", "found by", "finds"), rows)


def _row(check: Check) -> tuple[str, ...]:
    file = check.origin.removeprefix(f"{BUILT_IN}.").replace(".", "/") + ".py"
    return (
        check.code,
        f"[{check.slug}]({file})",
        str(check.severity),
        ", ".join(f"`{command}`" for command in found_by(check)),
        check.title,
    )


def _table(headers: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table, without padding: a longer cell changes its own line only."""
    for row in (headers, ("---",) * len(headers), *rows):
        yield f"| {' | '.join(row)} |"


FILES = {
    "broken.py": "has the fault: a training script, or what the check is shown (below)",
    "healthy.py": "its twin, without the fault and otherwise alike: no check says anything of it",
    "fake_host.py": "the host's facts for both twins, where the scripts import torch",
    "broken.log": "a log in which this check is the first cause",
    "healthy.log": "a near miss, in which it is not named",
    "broken.sources": "small programs, each with the fault on a line that is marked",
    "healthy.sources": "small programs that look like it; no check finds anything in them",
}
FOLDERS = {
    "corpus": "logs of others, by area (below)",
    "healthy_logs": "output of trainings that failed in nothing: no cause is named in them",
    "nvml": "a stand-in for NVIDIA's NVML library, and the GPUs that it pretends to have, one `.topology` file a host",
}
MODEL, LOADER, SCRIPT, OTHER = "a model", "a loader", "a training script", "something else"


def _of_fixtures(checks: tuple[Check, ...]) -> Iterator[str]:
    folders = [_folder(check) for check in checks]
    there = Counter(path.name for folder in folders for path in folder.iterdir() if path.is_file())
    yield from (WRITTEN, "", "# The fixtures", "", ON_FIXTURES, "")
    yield from _table(
        ("file", "what it is", "folders"), [(f"`{name}`", FILES[name], str(there[name])) for name in FILES]
    )
    yield from (
        "",
        "## What a case can define",
        "",
        inspect.getdoc(probes) or "",
        "",
        "## Started by hand",
        "",
        BY_HAND,
    )
    yield from ("", "```", *_by_hand(folders), "```", "", "## Folders that belong to no check", "")
    yield from (f"- `{name}`: {FOLDERS[name]}." for name in _others(folders))
    yield from (
        "",
        "## Sources",
        "",
        inspect.getdoc(sources) or "",
        "",
        "## The corpus",
        "",
        inspect.getdoc(corpus) or "",
    )


def _folder(check: Check) -> Path:
    return ROOT / "fixtures" / check.slug.replace("-", "_")


def _others(folders: list[Path]) -> list[str]:
    files = (path for path in (ROOT / "fixtures").glob("*/*") if path.is_file() and path.parent not in folders)
    return sorted({path.parent.name for path in files if not path.parent.name.startswith("_")})


def _by_hand(folders: list[Path]) -> Iterator[str]:
    """Yield a command for each kind of case, with the first that there is of it."""
    kinds: dict[str, str] = {}
    for folder in folders:
        if (folder / "broken.py").is_file():
            kinds.setdefault(_kind(folder / "broken.py"), folder.name)
    script = f"torchrun --standalone --nproc-per-node=2 fixtures/{kinds[SCRIPT]}/broken.py"
    model, loader = (f"fixtures/{kinds[kind]}/broken.py" for kind in (MODEL, LOADER))
    logged = next(folder.name for folder in folders if (folder / "broken.log").is_file())
    yield script
    yield f"ddpdoctor run --hang-after 5 --on-finding raise -- {script}"
    yield f"ddpdoctor check --model {model}:build_model --batch {model}:example_batch"
    yield f"ddpdoctor check --loader {loader}:build_loader"
    yield f"ddpdoctor explain fixtures/{logged}/broken.log"
    yield f"ddpdoctor selftest --verbose {kinds[OTHER].replace('_', '-')}"


def _kind(path: Path) -> str:
    names = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    kinds = {"fake_host": OTHER, "in_each_rank": OTHER, "build_model": MODEL, "build_loader": LOADER, "main": SCRIPT}
    return next((kind for name, kind in kinds.items() if name in names), OTHER)


if __name__ == "__main__":
    for name, text in pages(load_checks()).items():
        (ROOT / name).write_text(text, encoding="utf-8")
