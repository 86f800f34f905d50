"""``ddpdoctor bench``: what collectives cost here, and what each setting of DDP gives your model."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddpdoctor.bench.pairs import MOST
from ddpdoctor.cli.options.required import require_torch, require_writable
from ddpdoctor.cli.options.values import TARGET
from ddpdoctor.cli.screen.interrupt import ending_on_signals
from ddpdoctor.cli.screen.terminal import is_capable, progress, say
from ddpdoctor.facets import NotRun
from ddpdoctor.report.whole_file import write_whole

if TYPE_CHECKING:
    from ddpdoctor.examine.target import Target

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
FACTOR = 8  # between two sizes of a range
LARGEST = 1 << 32  # bytes of a tensor
NOT_MEASURED = 2  # the exit status


def sizes(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    """Read ``1K:64M`` (in steps of a factor of 8, and the last one) or ``4K,1M``."""
    low, colon, high = value.partition(":")
    if not colon:
        return tuple(_size(each) for each in value.split(","))
    first, last = _size(low), _size(high)
    if first > last:
        raise click.BadParameter(f"{value!r}: the second size is smaller than the first")
    found = [first]
    while found[-1] * FACTOR <= last:
        found.append(found[-1] * FACTOR)
    return tuple(dict.fromkeys([*found, last]))


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size = int(match[1]) * UNITS[match[2].upper()] if match else 0
    if not 4 <= size <= LARGEST:  # noqa: PLR2004 - bytes of one number
        raise click.BadParameter(f"{text!r} is not a size from 4 bytes to 4G, such as 64K or 16M")
    return size


EVERY = 5.0  # seconds between two lines that say what is measured, where nobody sees the line of a terminal
CUT = "The machine was slow: not all rounds were made, so that the ranges are wider, and less can be advised."


@click.command()
@click.option("--nproc", type=click.IntRange(2, 64), default=2, show_default=True, metavar="N", help="Ranks.")
@click.option("--backend", type=click.Choice(["auto", "gloo", "nccl"]), default="auto", show_default=True)
@click.option(
    "--sizes", callback=sizes, default="1K:32M", show_default=True, metavar="SIZES", help="A range, or a list: 4K,1M."
)
@click.option("--model", type=TARGET, metavar="TARGET:NAME", help="A function that builds your model.")
@click.option("--batch", type=TARGET, metavar="TARGET:NAME", help="A function that makes a batch of one rank.")
@click.option("--launched", is_flag=True, help="A launcher has started this on each host: measure pairs of hosts.")
@click.option("--format", "form", type=click.Choice(["text", "json", "html"]), default="text", show_default=True)
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path),
    help="Write the figures to this file; a page where it ends in .html.",
)  # fmt: skip
def bench(  # noqa: PLR0913 - its options
    *,
    nproc: int,
    backend: str,
    sizes: tuple[int, ...],
    model: Target | None,
    batch: Target | None,
    launched: bool,
    form: str,
    output: Path | None,
) -> None:
    """Measure collectives, or each setting of DDP for your model.

    Without --model: collectives by size, next to what the link between two ranks carries. With --model and --batch:
    steps of the model on one rank, under DDP, and with each of its settings, in turn. With --launched: each pair of
    hosts; torchrun --nnodes=3 ... --no-python ddpdoctor bench --launched
    """
    if (model is None) is not (batch is None):
        raise click.UsageError("--model and --batch belong together")
    if output is not None:
        require_writable("--output", output)
    require_torch("bench")
    if launched and model is not None:
        raise click.UsageError("--launched and --model do not go together")
    if output is not None and output.suffix == ".html":
        form = "html"
    with ending_on_signals():
        if launched:
            text = _launched(backend, form)
        else:
            text = _measured(nproc, backend, sizes, None if model is None or batch is None else (model, batch), form)
    if not text:
        return  # rank 0 says it
    if output is None:
        say(text)
    else:
        write_whole(output, f"{text}\n")


def _measured(
    nproc: int, backend: str, sizes: tuple[int, ...], targets: tuple[Target, Target] | None, form: str
) -> str:
    from ddpdoctor.bench.links import measure_links, measure_ranks
    from ddpdoctor.bench.settings import tune
    from ddpdoctor.jobs.pool import Jobs
    from ddpdoctor.report.bench.data import bench_data
    from ddpdoctor.report.bench.pairs import pairs_text
    from ddpdoctor.report.bench.text import links_text, tuned_text
    from ddpdoctor.report.html.bench_page import bench_page

    started, load = time.monotonic(), os.getloadavg()[0]
    tells = Tells()
    with Jobs(nproc, os.environ) as jobs:
        try:
            chosen = _backend(backend, nproc)
            links = None if targets else measure_links(jobs, chosen, sizes, 0.5, tells)
            tuned = tune(jobs, chosen, *targets, tells) if targets else None
            tells("each pair of ranks")
            pairs = measure_ranks(jobs, chosen) if links and 2 < nproc <= MOST else None  # noqa: PLR2004 - of two ranks above
        except NotRun as exc:
            click.echo(f"ddpdoctor bench: not measured, because {exc}", err=True)
            sys.exit(NOT_MEASURED)
        finally:
            progress("")
    about = {"load": load, "processors": os.cpu_count() or 1, "seconds": time.monotonic() - started}
    caveats = _caveats(about, nproc)
    if tuned is not None and tuned.is_cut:
        caveats.append(CUT)
    if form == "json":
        return json.dumps({**bench_data(links, tuned, pairs), **about}, indent=2)
    if form == "html":
        return bench_page(links, tuned, pairs, caveats)
    shown = links_text(links) if links else tuned_text(tuned) if tuned else ""
    if pairs:
        shown += f"\n{pairs_text(pairs)}"
    return "\n".join((shown, *caveats, f"{about['seconds']:.1f} s"))


@dataclass(slots=True)
class Tells:
    """Says what is measured: on a terminal each time, elsewhere a line every few seconds."""

    last: float = 0.0

    def __call__(self, text: str) -> None:
        """Say it."""
        if is_capable(sys.stderr):
            progress(text)
        elif time.monotonic() - self.last >= EVERY:
            self.last = time.monotonic()
            click.echo(f"ddpdoctor bench: {text}", err=True)


def _launched(backend: str, form: str) -> str:
    """Return what was measured, on rank 0; nothing on the others."""
    from ddpdoctor.bench.launched import measure_launched
    from ddpdoctor.report.bench.data import bench_data
    from ddpdoctor.report.bench.pairs import pairs_text
    from ddpdoctor.report.html.bench_page import bench_page

    try:
        pairs, chosen = measure_launched(backend)
    except NotRun as exc:
        click.echo(f"ddpdoctor bench: not measured, because {exc}", err=True)
        sys.exit(NOT_MEASURED)
    if pairs is None:
        return ""
    if form == "json":
        return json.dumps({"backend": chosen, **bench_data(None, None, pairs)}, indent=2)
    return bench_page(None, None, pairs, []) if form == "html" else f"{chosen}: {pairs_text(pairs)}"


def _backend(asked: str, nproc: int) -> str:
    """Return the backend that ranks of this host would use.

    Raises:
        NotRun: NCCL was asked for, and there is no GPU for each rank.
    """
    if asked == "gloo":
        return asked
    from ddpdoctor.host.facts import gather

    gpus = len(gather().gpus.devices)
    if gpus >= nproc:
        return "nccl"
    if asked == "nccl":
        raise NotRun(f"{nproc} ranks over NCCL need {nproc} GPUs, and {gpus} are here")
    return "gloo"


def _caveats(about: dict[str, Any], nproc: int) -> list[str]:
    """Return what makes the figures those of another machine."""
    said = []
    if about["load"] > about["processors"] / 2:
        said.append(
            f"This machine was busy: load {about['load']:.1f} on {about['processors']} processors before it began."
        )
    if nproc > about["processors"]:
        said.append(f"{nproc} ranks shared {about['processors']} processors: on their own they are faster.")
    return said
