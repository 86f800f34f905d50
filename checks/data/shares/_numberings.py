"""Tables of numbers that ranks have given to words, compared."""

from __future__ import annotations

from ddpdoctor.check import Numbered, Training

FEWEST = 3  # words that two ranks have in common
APART = 2  # of them, that have other numbers


def renumbered(first: Numbered, other: Numbered) -> tuple[int, int]:
    """Return how many words have another number in the other table, and of how many; zeros where that is chance."""
    numbers = dict(first.sample)
    common = {word: number for word, number in other.sample if word in numbers}
    apart = sum(numbers[word] != number for word, number in common.items())
    return (0, 0) if len(common) < max(FEWEST, len(other.sample) / 2) or apart < APART else (apart, len(common))


def words_differ(training: Training) -> bool:
    """Whether the ranks number words differently: what looks the same in numbers is not the same then."""
    for event in training.of(Numbered, rank=0):
        first, *others = training.complete(Numbered, name=event.name, site=event.site).values() or [event]
        if event.size != training.world_size and any(renumbered(first, other)[0] for other in others):
            return True
    return False
