"""Passes over loaders: how each begins, the order that its sampler draws, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """What a loader's sampler says of itself; None where it does not have the attribute.

    ``splits``: it is of a class of the user's, whose code speaks of a rank and of the number of ranks. ``draws``: it
    can draw from a generator of the process. ``shares``: into so many Accelerate's own batch sampler, which is around
    it, cuts what it draws. ``of_batches``: it is a batch sampler, of another kind than torch's. ``held_as`` is the
    attribute of the loader that holds it.
    """

    number: int
    kind: str
    replicas: int | None = None
    rank: int | None = None
    shuffle: bool | None = None
    seed: int | None = None
    epoch: int | None = None
    length: int | None = None
    drop_last: bool | None = None
    replacement: bool | None = None
    splits: bool = False
    shares: int | None = None
    draws: bool = True
    of_batches: bool = False
    held_as: str = "sampler"

    @property
    def claims_to_shuffle(self) -> bool:
        """Whether it says that it shuffles, or has a seed and does not say that it doesn't."""
        return bool(self.shuffle) or (self.shuffle is None and self.seed is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStarted(Event):
    """A DataLoader is iterated from its start: ``number`` counts its passes from 0, ``site`` is the for loop.

    ``training`` says that gradients are on and a model that was wrapped is in training mode. ``length`` is that of the
    data set, ``batches`` what len() of the loader says; each None where it has none. ``keeper`` names who made the
    loader where that is a framework that splits data by itself. ``persistent``: its workers live on after the pass;
    ``changed`` are attributes of its data set that were given other numbers since the pass before, for which they have
    copies. ``loader_site`` is the line that made the loader, ``sampler_site`` the one that made a DistributedSampler,
    or where the user's own class draws; None where that was not seen. ``callers`` are the lines that led to the loop,
    innermost first: file, line and function. ``by_hand``: there is no loader, the script goes through the sampler.
    """

    loader: int
    number: int
    training: bool
    dataset: str
    length: int | None
    batches: int | None
    batch_size: int | None
    drop_last: bool
    workers: int
    iterable: bool
    sampler: Sampler | None
    given: int
    owning_library: str
    subgroups: bool
    persistent: bool = False
    changed: tuple[str, ...] = ()
    loader_site: Site | None = None
    sampler_site: Site | None = None
    callers: tuple[tuple[str, int, str], ...] = ()
    by_hand: bool = False

    @property
    def made(self) -> Site | None:
        """The line that made the loader; that of the loop where that is not known."""
        return self.loader_site or self.site

    @property
    def drawn_at(self) -> Site | None:
        """The line that made the sampler, or where it draws; that of the loader where that is not known."""
        return self.sampler_site or self.made


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSet(Event):
    """set_epoch was called on a sampler (the number that Sampler has)."""

    sampler: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSeen(Event):
    """The first indices that an epoch drew, and digests of its first batches; ``site`` is the for loop.

    ``trained``: a wrapped model in training mode was given what came out, with gradients on; where nobody has wrapped a
    model, a backward has followed. ``whole``: each batch that
    came out was followed by such a forward, of as many rows as the batch has. ``joins``: within DDP's join().
    """

    loader: int
    number: int
    indices: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()
    trained: bool = False
    whole: bool = False
    joins: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnded(Event):
    """A pass over a loader is over: ``complete`` when the sampler, or the data set, had no more.

    ``drawn`` are the indices that are multiples of ``stride``, in the order in which the pass drew them; the first
    pass of a loader alone tells them, and where a rehearsal has cut it short, those of its rest, which ``all_drawn``
    says. Of an iterable data set it tells how many ``samples`` it had, 0 where that is not
    known, and the ``least`` checksums of them. ``site`` is the for loop.
    """

    loader: int
    number: int
    batches: int
    complete: bool
    trained: bool = False
    drawn: tuple[int, ...] = ()
    stride: int = 1
    all_drawn: bool = False
    samples: int = 0
    least: tuple[int, ...] = ()
