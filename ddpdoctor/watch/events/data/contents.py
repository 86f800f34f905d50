"""What the data of a training are made of: what data sets hold, and tables of labels."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSeen(Event):
    """What a loader's data set holds; told right before its first pass.

    ``contents`` digests what decides which sample an index is; empty where that cannot be told from what the data set
    holds. ``picks`` digests the indices of a Subset, ``base`` the contents of what it is a part of. ``listed`` digests
    a list of the data set's that has an entry a sample, and ``members`` the same entries in whatever order; ``first``
    are the first indices, or entries, ``name`` is the attribute; ``least`` some of them as numbers, chosen by their
    hash: the same ones of equal lists. ``seeded_by`` is a worker_init_fn that seeds by the worker's number alone: its
    name, file and line, and the numbers that it holds. ``reader`` is the user's method that gives samples.
    ``generators`` are random generators that it draws from and that the loader's workers have copies of: where they
    are in the data set, and what makes another one. ``kind`` is
    the package of the data set's class.
    """

    loader: int
    contents: str
    base: str
    picks: str
    listed: str
    members: str
    first: tuple[str, ...]
    name: str
    reader: Site | None
    generators: tuple[tuple[str, str], ...]
    least: tuple[int, ...] = ()
    kind: str = ""
    seeded_by: tuple[str, str, int, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered(Event):
    """A table from texts to numbers without a gap that the functions that train hold, before the first step.

    ``name`` is the variable, with the attributes that lead there; ``sample`` has entries that are chosen by their hash,
    each with that hash, and ``first`` the first of them as text. ``site`` is where the function is that holds it.
    """

    name: str
    size: int
    sample: tuple[tuple[int, int], ...]
    first: tuple[str, ...]
