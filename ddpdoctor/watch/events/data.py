"""What loaders and samplers give."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event, Site

UNWRAPPED = -1
"""Stands for the number of a model that nobody has wrapped."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated(Event):
    """A pass that evaluated has ended, and this process trains again, or gives up its process group (``at_end``).

    ``sent`` are the communications since the pass began, barriers aside: operation, reduction, elements, file, line.
    ``complete``: the pass ran to its end. ``site`` is the for loop. ``given`` is, for each communication of one number,
    that number, as this rank gave it; None for any other.
    """

    loader: int
    number: int
    sent: tuple[tuple[str, str, int, str, int], ...]
    complete: bool
    at_end: bool
    given: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedByHand(Event):
    """A model that is trained was evaluated without a loader, the ``number``-th time.

    ``rows`` are checksums of the first rows that it was given; ``sent``, ``at_end`` and ``given`` are as in Evaluated;
    ``callers`` are the lines that led to the first forward, innermost first: file, line and function.
    """

    number: int
    rows: tuple[float, ...]
    sent: tuple[tuple[str, str, int, str, int], ...]
    at_end: bool
    callers: tuple[tuple[str, int, str], ...]
    given: tuple[float | None, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Drew(Event):
    """A model that trains is given one of the first batches of a pass, with torch's random generators in a ``state``.

    ``batch`` counts from 1 and has ``rows``; ``drawn`` is how many random numbers were drawn since it came, at least.
    ``site`` is the for loop. ``others`` are the same of numpy's and of Python's own generator, where numbers were drawn
    from them: name, state, and how many. ``fetched`` are those of all three that this process drew while the loader
    made the batch, and the states after it.
    """

    loader: int
    number: int
    batch: int
    rows: int
    state: str
    drawn: int
    others: tuple[tuple[str, str, int], ...] = ()
    fetched: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSeen(Event):
    """An iterable data set without workers has given one of the first batches of a pass (``batch`` counts from 1).

    ``held`` are digests of what its generator has in its variables, by name: tensors, arrays, texts. ``orders`` are
    lists of numbers or texts there that are in no order, with the first batch alone: name, digest, digest of what they
    have whatever the order, and length. ``drawers`` are random generators there, and those that the data set has as
    attributes: name, digest of the state, and seed, empty where it is not known. ``pieces`` are digests of the parts of
    the batch, empty for what is no tensor. ``site`` is the line with which the generator has given the last sample.
    """

    loader: int
    number: int
    batch: int
    held: tuple[tuple[str, str], ...] = ()
    orders: tuple[tuple[str, str, str, int], ...] = ()
    drawers: tuple[tuple[str, str, str], ...] = ()
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsGiven(Event):
    """A checksum of each row that a model was given in training, without a loader, up to a step's ``number``.

    ``model`` is the number of a wrapped one; ``UNWRAPPED``: it is what an optimizer trains. ``forwards`` is how many
    there were, and ``site`` the line of the first one. ``several``: the model was given more than these, of which
    nothing is known.
    """

    number: int
    rows: tuple[float, ...]
    model: int = UNWRAPPED
    forwards: int = 0
    several: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed(Event):
    """A few numbers of each rank are about to be added up over all of them by a line of the user's, seen there first.

    ``callers`` are the lines that led there, innermost first: file, line and function of each. ``site`` is the line.
    ``given`` is the number that this rank gives, where it is one, and lies on the CPU.
    """

    operation: str
    callers: tuple[tuple[str, int, str], ...]
    elements: int = 1
    given: float | None = None
