"""Whether the ranks share positions out of data sets that are not the same, which a check of data tells."""

from __future__ import annotations

from ddpdoctor.check import DataSeen, EpochStarted, Training


def shares_other_data(training: Training) -> bool:
    """Whether a sampler shares out positions of a list that other ranks have other entries in, or in another order.

    Whatever the ranks compute from such data differs as well.
    """
    split = {
        (each.pid, each.loader)
        for each in training.of(EpochStarted, training=True)
        if each.sampler is not None and each.sampler.replicas == training.world_size
    }
    listed: dict[int, set[str]] = {}
    for each in training.of(DataSeen):
        if (each.pid, each.loader) in split and each.listed:
            listed.setdefault(each.loader, set()).add(each.listed)
    return any(len(each) > 1 for each in listed.values())
