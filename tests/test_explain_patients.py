"""Each patient that is a training, started with torchrun and without any hook, explains itself by its output alone.

The first of each area by default, all of them with ``pytest -m "patients or not patients"``; see ``warm.py`` for how
their processes start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ddpdoctor.explain.engine import examination, explain
from ddpdoctor.explain.sources import Origin, blocks, sources
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.explain.answer import Answer

ROOT = Path(__file__).parents[1]
PATIENTS = ROOT / "fixtures"
TORCHRUN = Path(sys.executable).with_name("torchrun")
TIMEOUT = "10"  # seconds, for groups whose script names none: after them a hang ends as else after 30 minutes
LIMIT = 110  # seconds
CHECKS = load_checks()

# What the output alone cannot tell: the check that says so, and what its doubt leaves open. The list says why:
# torchrun reports no failure of a rank that left, a rank that reads too early finds half a file, and gloo's time-out
# tells where the ranks waited, not what each had called before.
APART = ("collective-timeout", "the ranks call collectives in another order, or one of them calls one in a branch")
DOUBTS = {
    "batch-size-differs": ("uneven-batches", "different batch sizes"),
    "collective-order-mismatch": APART,
    "collective-shape-mismatch": ("collective-timeout", "the shapes of their tensors differ"),
    "rank-died-or-stuck": ("collective-timeout", "a rank died, or hangs outside of the collective"),
    "rank-divergence": APART,
    "rank-left-early": ("uneven-batches", "leaves the script early"),
    "rank0-only-collective": APART,
    "read-while-written": ("truncated-checkpoint", "still writing the file"),
    "receive-deadlock": ("collective-timeout", "waits to receive before it sends"),
}
# An error of the script's own, which no check knows: it is shown as it is.
UNKNOWN = {"one-rank-failed": "KeyError"}
# Where torchrun ended the other rank before it could say where it waited, nothing can be compared.
ONE_RANK = "the ranks are in different places: "

Torchrun = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(scope="session")
def torchrun() -> Iterator[Torchrun]:
    """Give a torchrun that starts warm, and so do its two ranks; both streams come as one."""
    with tempfile.TemporaryDirectory() as folder:
        warm = [sys.executable, "-S", str(ROOT / "tests" / "warm.py"), f"{folder}/socket"]
        once = [sys.executable, *warm[2:]]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(once, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"

            def run(
                script: Path, cwd: Path, *options: str, interrupt: float = 0, **more: str
            ) -> subprocess.CompletedProcess[bytes]:
                launcher = [*warm, str(TORCHRUN), "--standalone", "--nproc_per_node=2", *options, "--no-python", *warm]
                interrupted = ["timeout", "-s", "INT", str(interrupt)] if interrupt else []
                return subprocess.run(
                    [*interrupted, *launcher, str(script)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env={**environ, "WARM_TIMEOUT": TIMEOUT, **more},
                    timeout=LIMIT,
                    check=False,
                )

            yield run


def trainings() -> Iterator[object]:
    """Give the patients that train when they are started; all but the first of each area have a marker."""
    seen = set()
    for script in sorted(PATIENTS.glob("*/patient.py")):
        if '__name__ == "__main__"' in script.read_text():
            area = next(ROOT.glob(f"checks/*/{script.parent.name}.py")).parent.name
            marks = [pytest.mark.patients] if area in seen else []
            yield pytest.param(script, id=slug(script), marks=marks)
            seen.add(area)


def slug(script: Path) -> str:
    """Name the check whose patient it is."""
    return script.parent.name.replace("_", "-")


def answered(output: bytes) -> Answer:
    """Explain an output."""
    return explain([(Origin("output"), [output])], CHECKS)


def told(answer: Answer) -> str:
    """Name the first cause, or the error that no check knows."""
    return answer.unknown.record.error if answer.unknown else answer.cause.check.slug if answer.cause else ""


@pytest.mark.parametrize("script", list(trainings()))
def test_a_patient_explains_itself(script: Path, torchrun: Torchrun, tmp_path: Path) -> None:
    """Its check comes first, or one whose doubt leaves its fault open; where nothing failed, nothing is named."""
    done = torchrun(script, tmp_path)

    answer = answered(done.stdout)

    name, cause = DOUBTS.get(slug(script), (slug(script), ""))
    if done.returncode == 0:
        assert told(answer) == ""
        return
    assert told(answer) == UNKNOWN.get(name, name), done.stdout.decode(errors="replace")
    if cause:
        assert answer.cause is not None
        assert answer.cause.finding.doubt is not None
        assert any(cause in each or ONE_RANK in each for each in answer.cause.finding.doubt.causes)


@pytest.mark.patients
def test_a_hang_that_is_interrupted_says_where_it_stood(torchrun: Torchrun, tmp_path: Path) -> None:
    """Ctrl-C after some seconds: the ranks in a native call do not answer, which tells that they hang."""
    done = torchrun(PATIENTS / "collective_timeout" / "patient.py", tmp_path, interrupt=12, WARM_TIMEOUT="600")

    answer = answered(done.stdout)

    assert told(answer) == "interrupted-hang", done.stdout.decode(errors="replace")


@pytest.mark.parametrize("options", [("--redirects", "3"), ("--tee", "3")], ids=["redirects", "tee"])
def test_the_folder_that_torchrun_writes_says_the_same(
    options: tuple[str, ...], torchrun: Torchrun, tmp_path: Path
) -> None:
    """With --log-dir each rank has its files; the rank stands in their path."""
    script = PATIENTS / "unused_parameters" / "patient.py"

    done = torchrun(script, tmp_path, "--log-dir", str(tmp_path / "logs"), *options)

    examined = examination(CHECKS)
    for source in sources(str(tmp_path / "logs")):
        examined.read(source.origin, blocks(source))
    answer = examined.answer()
    assert done.returncode
    assert told(answer) == "unused-parameters"
    assert answer.cause is not None
    assert answer.cause.ranks == (0, 1)


@pytest.mark.parametrize("name", ["expanded_buffers", pytest.param("strides_differ", marks=pytest.mark.patients)])
def test_detail_of_torch_distributed_debug_changes_nothing(name: str, torchrun: Torchrun, tmp_path: Path) -> None:
    """What it prints besides is no other cause; a crash of the wrapper itself is told as what it is."""
    done = torchrun(PATIENTS / name / "patient.py", tmp_path, TORCH_DISTRIBUTED_DEBUG="DETAIL")

    answer = answered(done.stdout)

    assert told(answer) in {name.replace("_", "-"), "worker-segfault"}
    if told(answer) == "worker-segfault":
        assert answer.cause is not None
        assert answer.cause.finding.doubt is not None
        assert any("DETAIL" in cause for cause in answer.cause.finding.doubt.causes)
