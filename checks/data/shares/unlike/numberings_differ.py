"""The ranks give the same label, or word, different numbers.

## What happens

A table from labels or words to numbers is made by each rank for itself: from a set, whose order Python draws anew in
each process, or from the counts of the rank's own share. Class 3 is a dog on one rank and a horse on another. Each
rank's loss goes against that of the others; the model that all of them share learns a mixture, and nothing raises.

## How to be sure

Print the table on each rank. ddpdoctor (`ddpdoctor run`) looks, once, right before the first step of an optimizer, at
the variables of the functions that train, and at the attributes of their objects, for tables from texts to numbers
without a gap, behind those of a few special tokens (and lists of classes), and compares up to 64 entries of each,
chosen by a hash that is the same on all ranks. Reported are tables of one name that have words in common and give
several of them other numbers.

## How to mend it

Sort: `{name: number for number, name in enumerate(sorted(set(labels)))}`. What is counted is counted over the whole
corpus, or by rank 0, which gives it to the others: `dist.broadcast_object_list`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: Python documentation, "PYTHONHASHSEED".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Numbered, Severity, Training, place, watch

from ...._evaluation.evaluations import shares_gradients
from ._numberings import Made, made_at, renumbered

AILMENT = Ailment("DDP624", Severity.ERROR)
COUNTS = re.compile(r"\b(most_common|Counter|value_counts|bincount)\b|\.fit(_transform)?\(")


@watch(Numbered)
def while_training(event: Numbered, training: Training) -> Iterator[Finding]:
    """Compare a table of the same name on all ranks that share gradients."""
    ranks = training.complete(Numbered, name=event.name, site=event.site)
    if not ranks or not shares_gradients(event.pid, training) or event.size == training.world_size:
        return
    first, *others = ranks.values()
    for other in others:
        apart, common = renumbered(first, other)
        if not apart:
            continue
        made = made_at(event.name, event.site)
        yield Finding(
            f"{event.name} gives the same words other numbers on each rank: {apart} of {common} that were "
            f"looked at differ between rank {first.rank} and rank {other.rank}",
            tuple(
                Evidence(", ".join(each.first), "the same on each rank", f"rank {rank}, {event.name}")
                for rank, each in ranks.items()
            )[:8]
            + ((Evidence(made.code, "one order on all ranks", f"{made.file}:{made.line}"),) if made else ()),
            _given_to_all(event.name) if _counted(first, other, made) else _sorted(made),
            place(event.site),
        )
        return


def _counted(first: Numbered, other: Numbered, made: Made | None) -> bool:
    """Whether each rank has made the table of what it has itself: other words, or other counts."""
    same = {word for word, _ in first.sample} == {word for word, _ in other.sample}
    return not same or bool(made and not made.sorted and COUNTS.search(made.code))


def _sorted(made: Made | None) -> Fix:
    return Fix(
        "number them in one order on all ranks",
        diff=made.sorted
        if made and made.sorted
        else "-{name: number for number, name in enumerate(set(names))}\n"
        "+{name: number for number, name in enumerate(sorted(set(names)))}",
    )


def _given_to_all(name: str) -> Fix:
    return Fix(
        "make it of all texts, or labels, on rank 0, and give it to all before anything is numbered with it",
        diff=f"+made = [{name}]\n+dist.broadcast_object_list(made, src=0)\n+{name} = made[0]",
    )
