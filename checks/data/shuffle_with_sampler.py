"""A DataLoader is given a sampler and shuffle=True.

torch refuses: "ValueError: sampler option is mutually exclusive with shuffle". A sampler decides the order, so
shuffle=True has nothing to shuffle; a DistributedSampler shuffles by itself.

Scripts that run with and without DDP often pass both, because shuffle=True was there first: let it depend on whether
there is a sampler.

To be sure: the traceback ends in DataLoader.__init__.

Source: PyTorch documentation, torch.utils.data.DataLoader, "sampler". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam
from ddpdoctor.probe.target import own_frames

CARD = Card("DDP602", Severity.ERROR)


@probe
def refused(loader: LoaderExam) -> Iterator[Finding]:
    """See whether torch refused to build the loader."""
    if loader.refusal is not None:
        frames = own_frames(loader.refusal.frames)
        yield Finding(
            "torch refuses the loader: it is given a sampler and shuffle=True",
            (
                Evidence(
                    f"{loader.refusal.kind}: {loader.refusal.message}", "a DataLoader", f"rank {loader.refusal.rank}"
                ),
            ),
            Fix(
                "leave the shuffling to the sampler",
                diff="- DataLoader(dataset, sampler=sampler, shuffle=True)\n"
                "+ DataLoader(dataset, sampler=sampler, shuffle=(sampler is None))",
            ),
            Place(file=frames[-1].file, line=frames[-1].line) if frames else Place(),
        )
