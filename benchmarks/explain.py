"""Measures ``ddpdoctor explain``: how often the first answer is right, how fast it reads, how soon it answers.

Usage: python benchmarks/explain.py [--corpus FOLDER] [--misses] [--healthy FOLDER] [--speed [MEGABYTES]] [--real]
       [--causes NUMBER]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ddpdoctor.facets import Check, LogPattern, Pattern
from ddpdoctor.logs.candidates import Declared
from ddpdoctor.logs.examination import explain, prepared
from ddpdoctor.logs.pattern_cache import cached
from ddpdoctor.logs.read.sources import Origin
from ddpdoctor.registry import load_checks
from ddpdoctor.selftest.corpus import Case, cases, first_word

FIXTURES = Path(__file__).parents[1] / "fixtures"
RANKS = 64
RUNS = 5
STUCK = 75  # seconds after which a broken case that hangs is interrupted


def accuracy(folder: Path, *, misses: bool) -> None:
    """Print how many logs of the corpus are answered rightly, and how many of those that others reported."""
    checks = load_checks()
    right: list[Case] = []
    every = [case for path in sorted(folder.glob("*.txt")) for case in cases(path)]
    for case in every:
        answer = explain([(Origin(case.name), [case.log.encode()])], checks)
        if case.is_right(answer):
            right.append(case)
        elif misses:
            print(f"{case.name:24} {' | '.join(sorted(case.labels)):48} answered {first_word(answer)}")
    for title, some, of in (
        ("all logs", right, every),
        ("reported by others", [each for each in right if each.about], [each for each in every if each.about]),
    ):
        print(f"first answer right, {title}: {len(some)} of {len(of)}, {100 * len(some) / len(of):.1f} %")


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


def never() -> Check:
    """Stand for a check that no log shows."""
    raise AssertionError


def causes(number: int) -> None:
    """Print what more causes cost: processor time to prepare and to read 1 MB, without and with made-up ones."""
    chance = random.Random(1)  # noqa: S311 - no secret
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.log")
        write_log(small, 1_000_000)
        data = small.read_bytes()
    patterns, needs = cached()
    words = sorted({word for texts in needs.values() for text in texts for word in text.split() if word.isalpha()})
    made = [f"{' '.join(chance.choices(words, k=4))} of cause {each:x}" for each in range(number)]
    rows = tuple(Declared(LogPattern(Pattern(re.escape(text))), never, 0) for text in made)
    more = dict(needs) | {row.log_pattern.pattern.pattern: [text] for row, text in zip(rows, made, strict=True)}
    for some in (patterns, patterns + rows):
        spent = []
        for _ in range(RUNS):
            started = time.process_time()
            examined = prepared(some, more.__getitem__)
            ready = time.process_time()
            examined.read(Origin("train.log"), [data])
            spent.append((ready - started, time.process_time() - ready))
        prepare, read = (statistics.median(each) for each in zip(*spent, strict=True))
        print(f"{len(some)} patterns: prepared in {prepare:.3f} s, 1 MB read in {read:.3f} s of processor time")


def timed(log: Path) -> tuple[float, float]:
    """Return the wall time of the command, and the most memory that it held."""
    command = [sys.executable, "-m", "ddpdoctor", "explain", str(log)]
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, _, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        process.returncode = 1
    return seconds, usage.ru_maxrss / 1024


def real() -> None:
    """Run each broken case that is a script with plain torchrun, and print what its output is explained by."""
    checks = load_checks()
    torchrun = Path(sys.executable).with_name("torchrun")
    right, failed = 0, 0
    for script in sorted(FIXTURES.glob("*/broken.py")):
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
        right += first_word(answer) == slug
        print(f"{slug:32} exit {done.returncode:4}  {first_word(answer)}")
    print(f"real failures named: {right} of {failed}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=FIXTURES / "corpus", help="a folder of labelled logs")
    parser.add_argument("--misses", action="store_true", help="list each wrong answer")
    parser.add_argument("--healthy", type=Path, default=FIXTURES / "healthy_logs", help="a folder of healthy logs")
    parser.add_argument("--speed", type=int, nargs="?", const=1000, metavar="MEGABYTES", help="time a large log")
    parser.add_argument("--causes", type=int, metavar="NUMBER", help="compare with so many more, made-up causes")
    parser.add_argument("--real", action="store_true", help="run the broken cases that fail with torchrun")
    options = parser.parse_args()
    accuracy(options.corpus, misses=options.misses)
    healthy(options.healthy)
    if options.speed:
        speed(options.speed)
    if options.causes:
        causes(options.causes)
    if options.real:
        real()


if __name__ == "__main__":
    main()
