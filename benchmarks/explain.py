"""Measures ``ddpdoctor explain``: how often the first answer is right, how fast it reads, how soon it answers.

Usage: python benchmarks/explain.py [--cases FILE] [--misses] [--healthy FOLDER] [--speed [MEGABYTES]] [--real]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.explain.answer import Answer, Confidence
from ddpdoctor.explain.engine import explain
from ddpdoctor.explain.sources import Origin
from ddpdoctor.registry import find, load_checks

if TYPE_CHECKING:
    from ddpdoctor.check import Check

FIXTURES = Path(__file__).parents[1] / "fixtures"
RANKS = 64
RUNS = 5
STUCK = 75  # seconds after which a patient that hangs is interrupted


@dataclass(frozen=True)
class Case:
    """A log whose cause is known: the label, and for an ambiguous one the others that it can be."""

    name: str
    log: str
    label: str
    others: tuple[str, ...]

    def is_right(self, answer: Answer) -> bool:
        """Say whether the answer names the label, or one of the others; undecidable where the label says so."""
        if answer.confidence is Confidence.UNDECIDABLE and self.label.endswith("-unspecified"):
            return True
        return answer.first is not None and bool(names(answer.first.check) & {self.label, *self.others})


def names(check: Check) -> set[str]:
    """Give all names of a check."""
    return {check.slug, *check.known_as}


def cases(path: Path) -> Iterator[Case]:
    """Read the labelled logs."""
    for line in path.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        others = case.get("alt_labels", ()) if case["ambiguous"] else ()
        yield Case(case["id"], case["symptom_log"], case["cause_label"], tuple(others))


def said(answer: Answer) -> str:
    """Give the answer in a word."""
    return answer.first.check.slug if answer.first else "unknown" if answer.unknown else "nothing"


def accuracy(path: Path, *, misses: bool) -> None:
    """Print how many labelled logs are answered rightly."""
    checks = load_checks()
    every = list(cases(path))
    right = 0
    for case in every:
        answer = explain([(Origin(case.name), [case.log.encode()])], checks)
        right += case.is_right(answer)
        if misses and not case.is_right(answer):
            known = "" if find(checks, case.label) else "  (no check has this name)"
            print(f"{case.name:32} {case.label:40} answered {said(answer)}{known}")
    print(f"first answer right: {right} of {len(every)}, {100 * right / len(every):.1f} %")


def healthy(folder: Path) -> None:
    """Print in how many healthy logs a cause is named."""
    checks = load_checks()
    logs = sorted(folder.glob("*.log"))
    answers = [explain([(Origin(log.name), [log.read_bytes()])], checks) for log in logs]
    alarms = [log.name for log, answer in zip(logs, answers, strict=True) if answer.cause or answer.unknown]
    print(f"healthy logs with a cause named: {len(alarms)} of {len(logs)} {', '.join(alarms)}")


def write_log(path: Path, size: int) -> None:
    """Write a log of interleaved ranks: NCCL's start, steps, a loader's lines, progress bars, and a failure."""
    chance = random.Random(1)  # noqa: S311 - no secret
    start = "node{n:02}:{r}:{r} [{g}] NCCL INFO Channel {k:02}/0 : {r}[{g}] -> {o}[{g}] via P2P/CUMEM/read"
    with path.open("w") as file:
        for rank in range(RANKS):
            for channel in range(24):
                line = start.format(n=rank // 8, r=rank, g=rank % 8, k=channel, o=(rank + 1) % RANKS)
                file.write(f"[rank{rank}]: {line}\n")
        step = 0
        while file.tell() < size:
            step += 1
            clock = f"2024-05-01 {step // 3600 % 24:02}:{step // 60 % 60:02}:{step % 60:02}"
            for rank in range(RANKS):
                loss = chance.random()
                file.write(
                    f"[rank{rank}]: {clock},{rank:03} INFO train: step {step} loss {loss:.4f} lr 3e-04 errors 0\n"
                    f"[rank{rank}]: {clock},{rank:03} DEBUG data: shard-{step % 977:05}.tar in {step % 99}.3 ms\n"
                    f"[rank{rank}]: \rTraining: {step % 100}%|####     | {step % 100}/100 [00:10<01:00, 3.4it/s]\n"
                )
        for rank in range(RANKS):
            file.write(
                f"[rank{rank}]: Traceback (most recent call last):\n"
                f'[rank{rank}]:   File "/home/user/train.py", line 41, in main\n'
                f"[rank{rank}]: ValueError: sampler option is mutually exclusive with shuffle\n"
            )


def speed(megabytes: int) -> None:
    """Print how fast a large log is read and what memory that takes, and how soon a small one is answered."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder, "large.log"), Path(folder, "small.log")
        write_log(large, megabytes * 1_000_000)
        write_log(small, 1_000_000)
        seconds, memory = timed(large)
        size = large.stat().st_size / 1e6
        print(f"{size:.0f} MB of {RANKS} ranks: {seconds:.1f} s, {size / seconds:.0f} MB/s, {memory:.0f} MB of memory")
        runs = sorted(timed(small)[0] for _ in range(RUNS))
        print(
            f"1 MB: {statistics.median(runs):.2f} s with start-up (median of {RUNS}; {runs[0]:.2f} to {runs[-1]:.2f})"
        )


def timed(log: Path) -> tuple[float, float]:
    """Give the wall time of the command, and the most memory that it held."""
    command = [sys.executable, "-m", "ddpdoctor", "explain", str(log)]
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, _, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        process.returncode = 1
    return seconds, usage.ru_maxrss / 1024


def real() -> None:
    """Run each patient that is a script with plain torchrun, and print what its output is explained by."""
    checks = load_checks()
    torchrun = Path(sys.executable).with_name("torchrun")
    right, failed = 0, 0
    for script in sorted(FIXTURES.glob("*/patient.py")):
        if "__main__" not in script.read_text():
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = f"timeout -s INT -k 15 {STUCK} {torchrun} --standalone --nproc_per_node=2 {script}"
            done = subprocess.run(
                command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, check=False
            )
        if done.returncode == 0:
            continue
        answer = explain([(Origin("stdout"), [done.stdout])], checks)
        slug = script.parent.name.replace("_", "-")
        failed += 1
        right += said(answer) == slug
        print(f"{slug:32} exit {done.returncode:4}  {said(answer)}")
    print(f"real failures named: {right} of {failed}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cases", type=Path, default=FIXTURES / "logs.jsonl", help="labelled logs, a JSON object a line"
    )
    parser.add_argument("--misses", action="store_true", help="list each wrong answer")
    parser.add_argument("--healthy", type=Path, default=FIXTURES / "healthy", help="a folder of healthy logs")
    parser.add_argument("--speed", type=int, nargs="?", const=1000, metavar="MEGABYTES", help="time a large log")
    parser.add_argument("--real", action="store_true", help="run the patients that fail with torchrun")
    options = parser.parse_args()
    accuracy(options.cases, misses=options.misses)
    healthy(options.healthy)
    if options.speed:
        speed(options.speed)
    if options.real:
        real()


if __name__ == "__main__":
    main()
