"""Each rank goes through the whole data set.

Without a DistributedSampler, or another way to give each rank its share, N ranks load the same samples: an epoch
costs N times the work. With the same seed on all ranks the batches are even identical, the averaged gradient is that
of one rank, and the other N - 1 GPUs add nothing.

To be sure: print the first indices of an epoch on each rank.

Not reported: data sets that are split by themselves (each index means another sample on each rank), samplers that
draw with replacement, and loaders without indices. A loader that does not shuffle can be one for evaluation, where
each rank is to see everything if only its own result counts: then the causes that remain are named. Lightning,
Accelerate and Transformers put the sampler in themselves: where one of them is imported, it is a note.

Source: PyTorch documentation, torch.utils.data.distributed.DistributedSampler. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Doubt, Evidence, Finding, Fix, NotRun, Place, Severity, Table
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam

CARD = Card("DDP601", Severity.ERROR)
WHOLE = 0.9  # of the data set: drop_last leaves a few samples out


@probe
def by_indices(loader: LoaderExam) -> Iterator[Finding]:
    """Compare what each rank goes through."""
    ranks = loader.indexed()
    sampler = loader.first.sampler
    if len(ranks) < 2 or sampler is None:  # noqa: PLR2004 - one rank shares with nobody
        raise NotRun("needs two ranks")
    if sampler.distributed or sampler.draws_with_replacement or loader.same_data is False:
        return
    if not all(rank.length and len(set(rank.orders[0])) >= WHOLE * rank.length for rank in ranks):
        return
    identical = len({rank.orders[0] for rank in ranks}) == 1
    doubt = _doubt(loader)
    yield Finding(
        f"each of {len(ranks)} ranks goes through all {loader.first.length} samples"
        + (", in the same order" if identical else ""),
        tuple(
            Evidence(
                f"{len(set(rank.orders[0]))} samples, first {list(rank.orders[0][:6])}",
                f"about {(rank.length or 0) // len(ranks)} that no other rank has",
                f"rank {rank.rank}, {sampler.kind}",
            )
            for rank in ranks
        ),
        Fix(
            "give each rank its share",
            diff="+ sampler = DistributedSampler(dataset)\n"
            "- loader = DataLoader(dataset, shuffle=True, ...)\n"
            "+ loader = DataLoader(dataset, sampler=sampler, ...)\n"
            "+ sampler.set_epoch(epoch)  # first in each epoch",
        ),
        Place(file=loader.target.rpartition(":")[0]),
        severity=_severity(loader, identical=identical),
        table=Table(
            ("rank", "samples", "of", "sampler"),
            tuple((rank.rank, len(set(rank.orders[0])), rank.length or 0, sampler.kind) for rank in ranks),
        ),
        doubt=doubt,
    )


def _doubt(loader: LoaderExam) -> Doubt | None:
    """Say what else such a loader can be: one that a framework will change, or one for evaluation."""
    file = loader.target.rpartition(":")[0]
    if frameworks := _frameworks(loader):
        causes = (f"{frameworks[0]} puts the sampler in, later", "nobody puts a sampler in")
        return Doubt(causes, f"grep -nE 'prepare|Trainer|setup_dataloaders' {file}")
    if loader.first.sampler is not None and not loader.first.sampler.shuffles:
        causes = ("a loader for training without DistributedSampler", "a loader for evaluating everything on each rank")
        return Doubt(causes, f"grep -n 'DataLoader(' {file}")
    return None


def _severity(loader: LoaderExam, *, identical: bool) -> Severity | None:
    if _frameworks(loader):
        return Severity.NOTE
    return None if identical and _doubt(loader) is None else Severity.WARNING


def _frameworks(loader: LoaderExam) -> tuple[str, ...]:
    return loader.first.source.frameworks if loader.first.source else ()
