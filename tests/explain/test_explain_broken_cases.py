"""Each broken case that is a training, started with torchrun and without any hook, explains itself by its output alone.

The first of each area whose check reads logs by default, all of them with ``pytest -m "zoo or not zoo"``; see
``warm.py`` for how their processes start.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS, FIXTURES, PREPARED, Command, answered

from ddpdoctor.facets import Instrument
from ddpdoctor.logs.read.sources import blocks, sources

if TYPE_CHECKING:
    from ddpdoctor.logs.answer import Answer

TIMEOUT = "10"  # seconds, for groups whose script names none: after them a hang ends as else after 30 minutes
LIMIT = 110  # seconds

# What the output alone cannot tell: the check that says so, and what its doubt leaves open. The list says why:
# torchrun reports no failure of a rank that left, a rank that reads too early finds half a file, and gloo's time-out
# tells where the ranks waited, not what each had called before.
APART = ("collective-timeout", "the ranks call collectives in another order, or one of them calls one in a branch")
DOUBTS = {
    "batch-sizes-differ": ("uneven-inputs", "different batch sizes"),
    "collective-order-mismatch": APART,
    "collective-shape-mismatch": ("collective-timeout", "the shapes of their tensors differ"),
    "peer-connection-lost": ("collective-timeout", ""),
    "rank-died-or-stuck": ("collective-timeout", "a rank died, or hangs outside of the collective"),
    "ranks-diverge": APART,
    "rank-left-early": ("uneven-inputs", "leaves the script early"),
    "rank0-only-collective": APART,
    "checkpoint-read-while-written": ("truncated-checkpoint", "still writing the file"),
    "launchers-port-overridden": ("missing-ranks-at-init", ""),
    "receive-deadlock": ("collective-timeout", "waits to receive before it sends"),
}
# They print nothing and end at nothing: only a look from outside, or the watch, tells.
SILENT = {"build-lock-left"}
# Which ranks meet is chance, and so is what they fail of: another consequence in each run. The watch names the cause.
BY_CHANCE = {"launcher-and-spawn-both"}
# An error of the script's own, which no check knows: it is shown as it is.
UNKNOWN = {"one-rank-failed": "KeyError"}
# Where torchrun ended the other rank before it could say where it waited, nothing can be compared.
ONE_RANK = "the ranks are in different places: "

Started = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def started(torchrun: Command, tmp_path: Path) -> Started:
    """Return a function that starts a script with a warm torchrun; both streams come as one."""

    def run(script: Path, *options: str, interrupt: float = 0, **more: str) -> subprocess.CompletedProcess[bytes]:
        interrupted = ["timeout", "-s", "INT", str(interrupt)] if interrupt else []
        return subprocess.run(
            [*interrupted, *torchrun, *options, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ, "WARM_TIMEOUT": TIMEOUT, **more},
            timeout=LIMIT,
            check=False,
        )

    return run


def trainings() -> Iterator[object]:
    """Yield the broken cases that train when they are started; all but the first of each area have a marker.

    Of an area the first is meant that logs can show: of the others nothing is to be named.
    """
    seen = set()
    areas = {check.slug: check.area for check in CHECKS}
    shown = {check.slug for check in CHECKS if check.of(Instrument.LOG)}
    for script in sorted(FIXTURES.glob("*/broken.py")):
        if '__name__ == "__main__"' in script.read_text() and slug(script) not in SILENT | BY_CHANCE:
            area = areas[slug(script)]
            is_first = slug(script) in shown and area not in seen
            yield pytest.param(script, id=slug(script), marks=[] if is_first else [pytest.mark.zoo])
            seen |= {area} if is_first else set()


def slug(script: Path) -> str:
    """Return the name of the check whose broken case it is."""
    return script.parent.name.replace("_", "-")


def told(answer: Answer) -> str:
    """Return the name of the first cause, or the error that no check knows."""
    return answer.unknown.record.error if answer.unknown else answer.cause.check.slug if answer.cause else ""


@pytest.mark.parametrize("script", list(trainings()))
def test_a_broken_case_explains_itself(script: Path, started: Started) -> None:
    """Its check comes first, or one whose doubt leaves its fault open; where nothing failed, nothing is named."""
    done = started(script)
    if not_shown := re.search(rb"RuntimeError: (not shown: .*)", done.stdout):
        pytest.skip(not_shown[1].decode())

    answer = answered(done.stdout)

    name, cause = DOUBTS.get(slug(script), (slug(script), ""))
    if done.returncode == 0:
        assert told(answer) == ""
        return
    assert told(answer) == UNKNOWN.get(name, name), done.stdout.decode(errors="replace")
    if cause:
        assert answer.cause is not None
        assert answer.cause.finding.ambiguity is not None
        assert any(cause in each or ONE_RANK in each for each in answer.cause.finding.ambiguity.causes)


@pytest.mark.zoo
def test_a_hang_that_is_interrupted_says_where_it_stood(started: Started) -> None:
    """Ctrl-C after some seconds: the ranks in a native call do not answer, which tells that they hang."""
    done = started(FIXTURES / "collective_timeout" / "broken.py", interrupt=12, WARM_TIMEOUT="600")

    answer = answered(done.stdout)

    assert told(answer) == "interrupted-hang", done.stdout.decode(errors="replace")


@pytest.mark.parametrize("options", [("--redirects", "3"), ("--tee", "3")], ids=["redirects", "tee"])
def test_the_folder_that_torchrun_writes_says_the_same(
    options: tuple[str, ...], started: Started, tmp_path: Path
) -> None:
    """With --log-dir each rank has its files; the rank stands in their path."""
    script = FIXTURES / "unused_parameters" / "broken.py"

    done = started(script, "--log-dir", str(tmp_path / "logs"), *options)

    examined = PREPARED.anew()
    for source in sources(str(tmp_path / "logs")):
        examined.read(source.origin, blocks(source))
    answer = examined.answer()
    assert done.returncode
    assert told(answer) == "unused-parameters"
    assert answer.cause is not None
    assert answer.cause.ranks == (0, 1)


@pytest.mark.parametrize("name", ["expanded_buffers", pytest.param("strides_differ", marks=pytest.mark.zoo)])
def test_detail_of_torch_distributed_debug_changes_nothing(name: str, started: Started) -> None:
    """What it prints besides is no other cause; a crash of the wrapper itself is told as what it is."""
    done = started(FIXTURES / name / "broken.py", TORCH_DISTRIBUTED_DEBUG="DETAIL")

    answer = answered(done.stdout)

    assert told(answer) in {name.replace("_", "-"), "rank-segfault"}
    if told(answer) == "rank-segfault":
        assert answer.cause is not None
        assert answer.cause.finding.ambiguity is not None
        assert any("DETAIL" in cause for cause in answer.cause.finding.ambiguity.causes)
