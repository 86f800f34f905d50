"""States of the process's random generators, as ranks tell them of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Fix

if TYPE_CHECKING:
    from ddpdoctor.check import Drew, EpochStarted, Training

TORCH = "torch"
GENERATORS = {"torch": "torch.manual_seed", "numpy.random": "numpy.random.seed", "Python's random": "random.seed"}
FEWEST = 4  # rows


def fetched_alike(ranks: dict[int, Drew], name: str) -> bool:
    """Whether all ranks have drawn the same numbers from a generator while their batches were made."""
    told = [next((each for each in drew.fetched if each[0] == name), None) for drew in ranks.values()]
    enough = all(each is not None and each[2] >= FEWEST for each in told)
    return enough and len({each[1] for each in told if each is not None}) == 1


def apart(name: str, training: Training) -> Fix:
    """Return how the generator of a process is seeded on each rank, in the words of its framework."""
    framework, maker = training.framework, GENERATORS[name]
    if framework is None:
        diff = f" model = DistributedDataParallel(model)\n+{maker}(seed + dist.get_rank())"
    else:
        diff = f"+{maker}(seed + {framework.rank})   # behind the line that hands the model to {framework.name}"
    return Fix("seed with the rank, once the model is wrapped", diff=diff)


def shared_out(started: dict[int, EpochStarted]) -> bool:
    """Whether a loader is torch's own, or one of Accelerate's that gives each of these ranks a share."""
    return not any(each.subgroups for each in started.values()) and all(
        not each.owning_library or (each.sampler is not None and each.sampler.shares == len(started))
        for each in started.values()
    )


def alike(ranks: dict[int, Drew], name: str) -> bool:
    """Whether all ranks have drawn the same numbers from a generator since their batches came, one a sample or more."""
    enough = all(told_by(each, name)[1] >= max(each.rows, FEWEST) for each in ranks.values())
    return enough and len({told_by(each, name)[0] for each in ranks.values()}) == 1


def told_by(event: Drew, name: str) -> tuple[str, int]:
    """Return the state of a generator, and how many numbers were drawn from it."""
    told = {library: (state, drawn) for library, state, drawn in event.others}
    return (event.state, event.drawn) if name == TORCH else told.get(name, ("", 0))
