"""set_epoch is called, and the order stays the same.

The sampler says that it shuffles and has a set_epoch, but two epochs after set_epoch(1) and set_epoch(2) come in the
same order. Typical: a sampler of one's own that seeds its generator with the seed alone, one that makes its list in
__init__, or a wrapper that passes set_epoch to nobody.

To be sure: `sampler.set_epoch(1); print(list(sampler)[:8])`, then the same with 2.

Judged only for data sets of more than eight samples, where two equal shuffles are no chance. Source: torch's own
DistributedSampler.__iter__ seeds with `self.seed + self.epoch` (torch 2.2 to 2.13).
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam

CARD = Card("DDP605", Severity.WARNING)
FEW = 8  # samples on a rank: 8! orders


@probe
def by_telling_it(loader: LoaderExam) -> Iterator[Finding]:
    """Compare the epochs after set_epoch(1) and set_epoch(2)."""
    first = loader.indexed()[0]
    if first.sampler is None or not (first.sampler.has_set_epoch and first.sampler.shuffles):
        raise NotRun("no sampler that shuffles by epoch")
    # Two epochs that differ without being told: the sampler draws its order anew by itself.
    if first.orders[2] == first.orders[3] and first.orders[0] == first.orders[1] and len(first.orders[0]) > FEW:
        yield Finding(
            f"{first.sampler.kind}.set_epoch has no effect: epochs 1 and 2 come in the same order",
            (Evidence(f"both begin with {list(first.orders[2][:8])}", "another order", "rank 0, after set_epoch"),),
            Fix(
                "seed the sampler's generator with the epoch",
                diff="- generator.manual_seed(self.seed)\n+ generator.manual_seed(self.seed + self.epoch)",
            ),
            Place(file=loader.target.rpartition(":")[0]),
        )
