"""What ``bench`` measured, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.bench.combined import pasted
from ddpdoctor.bench.setting import ALONE, DATA_PARALLEL, DDP, TOGETHER
from ddpdoctor.bench.spread import is_faster, is_slower
from ddpdoctor.report.style import table_text
from ddpdoctor.report.text import printable

if TYPE_CHECKING:
    from ddpdoctor.bench.links import Links
    from ddpdoctor.bench.setting import Tried
    from ddpdoctor.bench.settings import Tuned
    from ddpdoctor.bench.spread import Spread

GIGA = 1e9
SMALL = 0.2  # of a batch
SECOND = "the 95 % interval of a second measurement, against DDP's defaults alone"
UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "us"))


class Told(NamedTuple):
    """What was measured: of what, the table, and what follows, whose lines to paste are indented."""

    about: str
    headers: tuple[str, ...]
    rows: list[list[str]]
    follows: list[str]

    @property
    def text(self) -> str:
        """All of it, for a terminal."""
        return "\n".join((self.about, table_text(list(self.headers), self.rows), *self.follows))


def links_told(links: Links) -> Told:
    """Return the operations by size, then what they reach of the link."""
    rows = [
        [each.operation, size_text(each.size), time_text(each.seconds), f"{each.bandwidth(links.ranks) / GIGA:.2f}"]
        for each in links.measured
    ]
    about = f"{links.ranks} ranks of this host, {links.backend}"
    return Told(about, ("operation", "bytes", "time (least to most)", "GB/s a rank"), rows, [*_verdict(links)])


def _verdict(links: Links) -> Iterator[str]:
    reduced = [each for each in links.measured if each.operation == "all_reduce"]
    most = max(each.bandwidth(links.ranks) for each in reduced)
    what = "one TCP connection over loopback" if links.backend == "gloo" else "a copy from GPU 0 to GPU 1"
    yield (
        f"all_reduce carries up to {most / GIGA:.2f} GB/s a rank, {what} {links.link / GIGA:.2f} GB/s: "
        f"{most / links.link:.0%} of it."
    )
    served = [each for each in links.measured if each.operation == "parameter server"]
    ring, server = reduced[-1].seconds.middle, served[-1].seconds.middle
    yield (
        f"The sum of {size_text(reduced[-1].size)} on all ranks takes {server / ring:.1f} times as long by a parameter "
        f"server: its rank 0 sends and receives {2 * (links.ranks - 1)} times the tensor, each rank of an all_reduce "
        f"{4 * (links.ranks - 1) / links.ranks:.3g} times."
    )


def links_text(links: Links) -> str:
    """Return all of it as text."""
    return links_told(links).text


def tuned_text(tuned: Tuned) -> str:
    """Return all of it as text."""
    return tuned_told(tuned).text


def tuned_told(tuned: Tuned) -> Told:
    """Return the settings with their times, then what follows from them."""
    rows = [[each.setting.name, *_cells(each)] for each in tuned.tried]
    about = f"{tuned.ranks} ranks, {size_text(tuned.size)} of parameters"
    about += f", {tuned.batch} samples in the batch of a rank" if tuned.batch else ""
    return Told(about, ("setting", "a batch (least to most)", "against DDP"), rows, [*_advice(tuned)])


def _cells(tried: Tried) -> tuple[str, str]:
    if tried.seconds is None or tried.ratio is None:
        return "not run", printable(tried.why_not)
    return time_text(tried.seconds), "" if tried.setting.name in (ALONE, TOGETHER, DDP) else ratio_text(tried.ratio)


def _advice(tuned: Tuned) -> Iterator[str]:
    if scaling := tuned.scaling:
        yield (
            f"{tuned.ranks} ranks do {scaling.middle:.2f} times the work of one ({scaling.low:.2f} to "
            f"{scaling.high:.2f} in single rounds): {scaling.middle / tuned.ranks:.0%} of what they could."
        )
    yield from _parts(tuned)
    yield from _notes(tuned)
    best, fastest = tuned.best, tuned.fastest
    if best is not None and best.ratio:
        yield f"Best here: DistributedDataParallel(model, {best.setting.name}), {ratio_text(best.ratio)}: {SECOND}."
    elif fastest is None:
        yield "No setting is measurably better than DDP's defaults here: leave them."
    else:
        yield "No setting that changes nothing else is measurably better: leave DDP's defaults."
    yield from (
        f"  {each.setting.name} was the fastest at first. Measured again, against DDP's defaults alone: "
        f"{ratio_text(each.ratio)}."
        for each in tuned.again
        if each.ratio and not is_faster(each.ratio)
    )
    if fastest is not None and fastest.ratio:
        faster = f"{ratio_text(fastest.ratio)}, {SECOND}"
        yield f"Fastest of all, where the training takes it ({fastest.setting.name}), {faster}:"
        yield from (f"  {line}" for line in pasted(fastest.setting))


def _parts(tuned: Tuned) -> Iterator[str]:
    """Yield where the time of a batch goes, by what was measured with and without the others, with and without DDP."""
    if (parts := tuned.parts) is None:
        return
    yield f"Of a batch under DDP, {time_text(parts.alone)} is what one rank alone needs; the rest:"
    for name, each in (
        ("since all ranks compute on this host at once", parts.sharing),
        ("for DDP and its exchange", parts.exchange),
    ):
        told = time_text(each) if each.low > 0 else "cannot be told from noise on this machine"
        yield f"  {name}: {told}"


def _notes(tuned: Tuned) -> Iterator[str]:
    """Yield what follows from the figures for settings that ask something of the training."""
    unused, parts = tuned.of("find_unused_parameters=True").ratio, tuned.parts
    if unused is not None and is_slower(unused):
        yield f"find_unused_parameters=True is {ratio_text(unused)}: leave it out where each parameter is used."
    ddp, fewer = tuned.of(DDP).seconds, tuned.of("no_sync, 4 batches a step").ratio
    if parts and ddp and fewer and is_faster(fewer) and parts.exchange.low > SMALL * ddp.middle:
        yield (
            f"The batch of a rank is too small to hide the exchange, {parts.exchange.middle / ddp.middle:.0%} of it: a "
            f"larger one, or no_sync over 4 batches, which is {ratio_text(fewer)} here."
        )
    over_gpus = next((each for each in tuned.tried if each.setting.name == DATA_PARALLEL), None)
    if over_gpus is not None and over_gpus.ratio is not None:
        yield (
            f"DataParallel, which scatters each batch from GPU 0, copies the model and gathers the outputs there, is "
            f"{ratio_text(over_gpus.ratio)} than DDP with the same samples."
        )
    if tuned.batch:
        yield (
            f"A step of {tuned.ranks} ranks is of {tuned.ranks} x {tuned.batch} = {tuned.ranks * tuned.batch} samples: "
            f"by the linear scaling rule (Goyal et al., 2017) a learning rate for {tuned.batch} becomes {tuned.ranks} "
            "times as large, after a warm-up."
        )


def ratio_text(ratio: Spread) -> str:
    """Return how much faster or slower something is, if each single round says so."""
    if is_faster(ratio):
        return f"{1 - ratio.middle:.0%} faster ({1 - ratio.high:.0%} to {1 - ratio.low:.0%})"
    if is_slower(ratio):
        return f"{ratio.middle - 1:.0%} slower ({ratio.low - 1:.0%} to {ratio.high - 1:.0%})"
    return f"not told apart ({_way(ratio.low)} to {_way(ratio.high)})"


def _way(ratio: float) -> str:
    return f"{abs(ratio - 1):.0%} {'faster' if ratio < 1 else 'slower'}"


def time_text(seconds: Spread) -> str:
    """Show the median, the least and the greatest time in one unit."""
    factor, unit = next((each for each in UNITS if seconds.middle * each[0] >= 1), UNITS[-1])
    low, middle, high = (f"{each * factor:.3g}" for each in (seconds.low, seconds.middle, seconds.high))
    return f"{middle} {unit} ({low} to {high})"


def size_text(size: int) -> str:
    """Show bytes in a binary unit."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:  # noqa: PLR2004 - the unit's step
            return f"{size:.4g} {unit}"
        size /= 1024  # type: ignore[assignment]  # from here on a fraction
    return f"{size:.4g} GiB"
