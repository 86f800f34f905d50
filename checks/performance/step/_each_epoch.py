"""What is done anew as each epoch begins, and would be the same if it were done once."""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import EpochStarted, Finding, Fix, LineKind, LinesSampled, SampledLine, StepsTimed, Training

from .._lines import seen
from ..source._read_each_epoch import read_again
from ._own_code import parts_of, together as whole_of
from ._rows import SHOWN, Told, measured_rows, most, taken

TWICE = 2  # steps in which epochs begin that are short
IN_THE_LOOP = {"", LineKind.LOADER_BEGUN}


def read_each_epoch(event: StepsTimed, training: Training, least: float) -> Iterator[Finding]:
    """Tell of the same file that is read anew in each epoch, on the rank that it takes longest of."""
    found: dict[tuple[str, int, str], list[Told]] = {}
    passes = [each for each in training.of(EpochStarted, training=True) if each.rank == event.ranks[0].rank]
    for rank, told in sorted(training.by_rank(LinesSampled).items()):
        together: dict[tuple[str, int, str], list[SampledLine]] = {}
        for part in (one for line in told.sampled if line.kind in IN_THE_LOOP for one in parts_of(line)):
            again = read_again(part.inner_file, part.inner_line)
            if again is not None and part.steps < least * told.steps:
                together.setdefault((part.inner_file, again.line, again.path), []).append(part)
        for key, parts in together.items():
            found.setdefault(key, []).append((rank, told, whole_of(parts)))
    for (file, number, path), several in found.items():
        rows = measured_rows(event, training, several, lambda _: TWICE)
        if not rows or len(passes) <= TWICE:
            continue
        longest, rank, *_ = most(rows)
        work = taken(training, longest, rank)
        if not work.is_much():
            continue
        yield Finding(
            f"{file}:{number} reads the same file ({path}) anew in each epoch, {len(passes)} by now: {work.text()} on "
            "average",
            tuple(
                seen(each, told, line, "" if at else "once") for at, (_, each, told, line) in enumerate(rows[:SHOWN])
            ),
            Fix(
                "read it once, before the loop over epochs, and keep the data set that is made of it; for another "
                f"order the sampler's set_epoch is enough: {work.promise}"
            ),
            work.place(file, number, len(rows), event),
        )
