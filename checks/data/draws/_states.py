"""States of the process's random generators, as ranks tell them of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Drew

TORCH = "torch"
GENERATORS = {"torch": "torch.manual_seed", "numpy.random": "numpy.random.seed", "Python's random": "random.seed"}
FEWEST = 4  # rows


def fetched_alike(ranks: dict[int, Drew], name: str) -> bool:
    """Whether all ranks have drawn the same numbers from a generator while their batches were made."""
    told = [next((each for each in drew.fetched if each[0] == name), None) for drew in ranks.values()]
    enough = all(each is not None and each[2] >= FEWEST for each in told)
    return enough and len({each[1] for each in told if each is not None}) == 1


def alike(ranks: dict[int, Drew], name: str) -> bool:
    """Whether all ranks have drawn the same numbers from a generator since their batches came, one a sample or more."""
    enough = all(told_by(each, name)[1] >= max(each.rows, FEWEST) for each in ranks.values())
    return enough and len({told_by(each, name)[0] for each in ranks.values()}) == 1


def told_by(event: Drew, name: str) -> tuple[str, int]:
    """Return the state of a generator, and how many numbers were drawn from it."""
    told = {library: (state, drawn) for library, state, drawn in event.others}
    return (event.state, event.drawn) if name == TORCH else told.get(name, ("", 0))
