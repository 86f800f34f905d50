"""The mutation test of the watch: which silent faults, made from healthy trainings one line at a time, does it name?

``python tests/mutants.py [TRAINING ...]`` runs each training of ``tests/trainings`` and each of its mutants on two
ranks, and prints a row for each mutant that raises nothing and ends with other numbers than the original. The tests
run no training of ``tests/trainings/more``. A mutant is written below its training::

    # mutant gradients: the model is not wrapped
    # - model = DDP(model)
    # + model = model

The lines that go stand in the training; where fewer come than go, ``pass`` keeps the numbers of all other lines. What
is called ``healthy`` in the place of a ledger is another way to do the same: nothing is to be found in it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import CHECKS

from ddpdoctor.jobs.outcome import Returned
from ddpdoctor.jobs.pool import Jobs
from ddpdoctor.watch.pooled import Launch, watch_in_pool

if TYPE_CHECKING:
    from ddpdoctor.watch.dispatcher import Found

TRAININGS = Path(__file__).parent / "trainings"
MORE = TRAININGS / "more"
HEAD = (TRAININGS / "head.txt").read_text(encoding="utf-8")
MARK = "# mutant "
HEALTHY = "healthy"
NEVER = 100.0  # seconds that a busy machine can hold a rank up for
NEAR = 3  # lines between the one that was changed and the one that a finding names


@dataclass(frozen=True, slots=True)
class Training:
    """A healthy training, and what can be changed in it."""

    name: str
    text: str
    mutants: tuple[Mutant, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the lines that go and those that come; ``area`` is the ledger that should show it."""

    area: str
    what: str
    gone: tuple[str, ...]
    come: tuple[str, ...]

    def of(self, text: str) -> tuple[str, int]:
        """Return the training with this change, and the number of the first line that differs."""
        lines = text.splitlines()
        stripped = [line.strip() for line in lines]
        gone = [line.strip() for line in self.gone]
        begins = [at for at in range(len(lines)) if _same(stripped[at : at + len(gone)], gone)]
        assert len(begins) == 1, f"{self.what}: {len(begins)} places have {gone}"
        (at,) = begins
        first = lines[at]
        prefix = first[: first.index(gone[0])]
        if not prefix.strip():
            base = len(self.come[0]) - len(self.come[0].lstrip()) if self.come else 0
            come = [prefix + line[base:] for line in self.come]
            come += [prefix + "pass"] * (len(gone) - len(come))
        else:  # a part of a line
            come = [first.replace(gone[0], self.come[0].strip())]
        return "\n".join([*lines[:at], *come, *lines[at + len(gone) :]]) + "\n", at + 1


def _same(lines: list[str], wanted: list[str]) -> bool:
    if len(wanted) == 1:
        return wanted[0] == lines[0] or (wanted[0] in lines[0] and lines[0].endswith(":") and wanted[0].endswith(":"))
    return lines == wanted


def trainings(folder: Path = TRAININGS) -> list[Training]:
    """Read the trainings of a folder: those that the tests run, or ``MORE``."""
    return [_read(path) for path in sorted(folder.glob("*.txt")) if path.stem != "head"]


def _read(path: Path) -> Training:
    text, *blocks = path.read_text(encoding="utf-8").split(f"\n{MARK}")
    return Training(path.stem, HEAD + text.rstrip() + "\n", tuple(map(_mutant, blocks)))


def _mutant(block: str) -> Mutant:
    title, *lines = block.splitlines()
    area, _, what = title.partition(": ")
    gone = tuple(line.removeprefix("# - ") for line in lines if line.startswith("# - "))
    come = tuple(line.removeprefix("# + ") for line in lines if line.startswith("# + "))
    return Mutant(area, what, gone, come)


@dataclass(frozen=True, slots=True)
class Run:
    """How a training ended: the error of a rank, what each rank came to, and what the watch found."""

    error: str
    result: list[object]
    found: list[Found]


def run(text: str, jobs: Jobs) -> Run:
    """Run a training, watched with all checks there are."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(text, encoding="utf-8")
        launch = Launch(script=script, argv=(f"{folder}/result",), deadline=60.0, hang_after=NEVER)
        outcomes, found, _ = watch_in_pool(launch, CHECKS, jobs, lambda _: False)
        # What takes time in a toy, on a machine that others use, says nothing of how its ranks share the work.
        found = [each for each in found if each.check.area != "performance"]
        errors = [str(each) for each in outcomes if not isinstance(each, Returned)]
        paths = [Path(f"{folder}/result.{rank}") for rank in range(2)]
        result = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    return Run(errors[0] if errors else "", result, found)


def is_silent(mutant: Run, original: Run) -> bool:
    """Whether nothing was raised, and the numbers are others."""
    return not mutant.error and repr(mutant.result) != repr(original.result)


def main(names: list[str]) -> None:
    """Run, and print."""
    total: Counter[tuple[str, str]] = Counter()
    print("| training | mutant | named | line |\n|---|---|---|---|")
    with Jobs(2, os.environ) as jobs:
        for training in (*trainings(), *trainings(MORE)):
            if names and training.name not in names:
                continue
            original = run(training.text, jobs)
            if original.error or original.found:
                print(f"| {training.name} | HEALTHY: {original.error} | {_slugs(original.found)} | |")
            for mutant in training.mutants:
                text, line = mutant.of(training.text)
                mutated = run(text, jobs)
                if mutant.area == HEALTHY:
                    if mutated.error or mutated.found:
                        print(f"| {training.name} | HEALTHY: {mutant.what} | {_slugs(mutated.found)} | |", flush=True)
                    continue
                if not is_silent(mutated, original):
                    why = mutated.error.strip().splitlines()[-1][:80] if mutated.error else "no difference"
                    print(f"| {training.name} | {mutant.area}: {mutant.what} | not silent: {why} | |", flush=True)
                    continue
                total[mutant.area, "all"] += 1
                total[mutant.area, "named"] += bool(mutated.found)
                lines = [each.finding.place.line for each in mutated.found]
                near = any(at is not None and abs(at - line) <= NEAR for at in lines)
                total[mutant.area, "at the line"] += near
                print(
                    f"| {training.name} | {mutant.area}: {mutant.what} | {_slugs(mutated.found)} |"
                    f" {'yes' if near else ', '.join(map(str, lines)) + f' for {line}'} |",
                    flush=True,
                )
    for area in sorted({area for area, _ in total}):
        print(f"{area}: {total[area, 'named']} of {total[area, 'all']} named, {total[area, 'at the line']} at the line")


def _slugs(found: list[Found]) -> str:
    return ", ".join(dict.fromkeys(each.check.slug for each in found))


if __name__ == "__main__":
    main(sys.argv[1:])
