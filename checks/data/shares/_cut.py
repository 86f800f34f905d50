"""Shares that each rank has cut by itself: Subsets, of which each is a rank's part of an order of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, Severity, Shares

from .._words import at, counted, shown
from ._shares import SLACK, few_are_shared

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam, RankLoader


def cut_by_rank(ranks: tuple[RankLoader, ...]) -> bool:
    """Whether the Subsets of all ranks are as large, together, as the data set below them, and are not the same."""
    length, parts = ranks[0].base_length, [rank.subset for rank in ranks]
    drawn = sum(len(part) for part in parts if part is not None)
    return (
        None not in parts
        and bool(length)
        and len(set(parts)) == len(parts)
        and abs(drawn - (length or 0)) <= SLACK * drawn
        and not any(rank.sampler is not None and rank.sampler.replicas is not None for rank in ranks)
    )


def cut_from_orders(loader: LoaderExam, shares: Shares) -> Finding | None:
    """Return what tells that the orders differ; None where the shares are nearly disjoint.

    A training that seeds all ranks alike before it builds the loader cuts them from one order: the loader alone cannot
    show it.
    """
    if few_are_shared(shares):
        return None
    ranks, length = loader.ranks, loader.ranks[0].base_length
    return Finding(
        f"each rank cuts its share from an order of its own: {counted(len(shares.repeated), 'sample')} of {length} are "
        "on several ranks",
        (
            Evidence(f"on several ranks: {shown(shares.repeated)}", "none", "all ranks' Subsets"),
            Evidence(f"{shares.distinct} different samples of {length}", f"{length}", "all ranks together"),
            *(Evidence(shown(rank.subset or ()), "", f"rank {rank.rank}'s Subset") for rank in ranks),
        ),
        Fix(
            "draw the order with the same seed on all ranks, then take each its part",
            diff="-random.shuffle(indices)\n+random.Random(0).shuffle(indices)   # the same on all ranks\n"
            " share = indices[rank::world_size]",
        ),
        at(loader),
        severity=Severity.NOTE,
        ambiguity=Ambiguity(
            (
                "the order is drawn without a seed, on each rank for itself",
                "the training seeds all ranks alike before it builds the loader",
                "each rank is to have samples of its own choice (an ensemble, bagging)",
            ),
            f"grep -nE 'shuffle|randperm|permutation|sample\\(|seed' {loader.file or '*.py'}",
        ),
    )
