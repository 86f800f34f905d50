"""The algebra of wrapper prefixes in the keys of a state dict; pure functions.

A wrapper holds the model as a child of a known name, which then stands in the keys: ``module.`` (DP, DDP,
AveragedModel), ``_orig_mod.`` (torch.compile), ``_fsdp_wrapped_module.`` and ``_fpw_module.`` (FSDP1),
``_checkpoint_wrapped_module.`` (activation checkpointing), ``_forward_module.`` (Lightning Fabric), ``_module.``
(Opacus). They stack in any order, at the front and inside.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

FSDP_NAMES = ("_fsdp_wrapped_module", "_fpw_module")
WRAPPER_NAMES = ("_orig_mod", *FSDP_NAMES, "_checkpoint_wrapped_module")  # nobody calls a layer of theirs so
USUAL = ("module", "_forward_module", "_module")  # somebody does
WRAPPERS = (*USUAL, *WRAPPER_NAMES)
FLAT = re.compile(r"_?flat_param(_\d+)?")
AVERAGED_COUNTER = "n_averaged"
AVERAGE = "module."  # of the model that it averages
COUNTERS = (AVERAGED_COUNTER, "steps")  # of torch's AveragedModel, and of mmengine's
MOST_FRONTS = 8  # stacks that begin differently, in one file
FEW_PARTS = 3  # wrapped each for itself, that are taken off one by one
DEEPEST = 8  # wrappers around each other
SEGMENT = re.compile(rf"(?:(?<=\.)|^)(?:{'|'.join(WRAPPERS)})(?=\.)")
FRONT = re.compile(rf"(?:(?:{'|'.join(WRAPPERS)})\.){{1,{DEEPEST}}}")
PREFIXES = tuple(f"{name}." for name in WRAPPERS)


@dataclass(frozen=True, slots=True)
class Strip:
    """What is taken out of keys: the segments ``front``, in this order, from their start, and ``inside`` anywhere."""

    front: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()

    @property
    def segments(self) -> tuple[str, ...]:
        """All of it, the outermost first, each once."""
        return tuple(dict.fromkeys((*self.front, *self.inside)))

    def __call__(self, key: str) -> str:
        """Take it out of one key, as far as it is there; the last segment names the tensor and stays."""
        for segment in self.front:
            key = key.removeprefix(f"{segment}.")
        if not self.inside or not SEGMENT.search(key):
            return key
        *path, name = key.split(".")
        return ".".join([*(segment for segment in path if segment not in self.inside), name])

    def of_all(self, keys: Sequence[str]) -> list[str]:
        """Take it out of each of the keys; as each alone, but at once where it is nothing but a front of all."""
        front = "".join(f"{segment}." for segment in self.front)
        # What the least and the greatest begin with, all begin with.
        if self.inside or not (min(keys, default="").startswith(front) and max(keys, default="").startswith(front)):
            return list(map(self, keys))
        return [key[len(front) :] for key in keys] if front else list(keys)

    def changes(self, keys: Sequence[str]) -> int:
        """Return how many of the keys it changes."""
        front = "".join(f"{segment}." for segment in self.front)
        if not self.inside and min(keys, default="").startswith(front) and max(keys, default="").startswith(front):
            return len(keys) if front else 0
        return sum(self(key) != key for key in keys)

    def __str__(self) -> str:
        """Render as it looks in a key: ``module._orig_mod.``."""
        return ".".join((*self.front, *(segment for segment in self.inside if segment not in self.front), ""))


def wrappers_in(key: str) -> tuple[str, ...]:
    """Name the wrapper segments of a key, the outermost first; the last segment is the tensor's own name."""
    return tuple(SEGMENT.findall(key))


def front_of(key: str) -> tuple[str, ...]:
    """Return the name of the wrapper segments at the start of a key."""
    found = FRONT.match(key) if key.startswith(PREFIXES) else None
    return _segments(found.group()) if found else ()


@functools.lru_cache(1024)
def _segments(front: str) -> tuple[str, ...]:
    return tuple(front.split(".")[:-1])


def has_wrappers(text: str) -> bool:
    """Whether the name of a wrapper, which no layer has, stands anywhere in a text of keys."""
    return any(name in text for name in WRAPPER_NAMES)


def is_flat(key: str) -> bool:
    """Recognise a flat parameter: FSDP's concatenation of the parameters of a unit."""
    return "flat_param" in key and any(FLAT.fullmatch(segment) for segment in key.split("."))


def is_averaged(keys: Collection[str]) -> bool:
    """Recognise the state dict of an AveragedModel: a counter beside keys that all begin with ``module.``."""
    return bool(counter_in(keys))


def counter_in(keys: Collection[str]) -> str:
    """Return which key is the counter of an AveragedModel; empty where these are the keys of none."""
    counter = next((each for each in COUNTERS if each in keys), "")
    rest = [key for key in keys if key != counter] if counter else []
    return counter if rest and all(key.startswith(AVERAGE) for key in rest) else ""


def within_average(keys: Collection[str]) -> Strip:
    """Return what wrappers left behind the ``module.`` that is an AveragedModel's own; nothing of what is none's."""
    counter = counter_in(keys)
    return assumed_strip(key.removeprefix(AVERAGE) for key in keys if key != counter) if counter else Strip()


def assumed_strip(keys: Iterable[str]) -> Strip:
    """Return what is taken out when nothing tells the model's own names.

    A name that a layer can have counts only at the front, and where every key has it.
    """
    keys = list(keys)
    counter = counter_in(keys) or AVERAGED_COUNTER
    keys = [key for key in keys if key != counter]
    front = shared_front(keys)
    text = "\n".join(keys)
    possible = [segment for segment in WRAPPER_NAMES if segment in text]
    inside = {segment for key in keys if possible for segment in wrappers_in(key)[len(front) :]}
    return Strip(front, tuple(segment for segment in possible if segment in inside))


def shared_front(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the wrapper segments at the start of all keys."""
    keys = list(keys)
    first, last = front_of(min(keys, default="")), front_of(max(keys, default=""))  # between them are all others
    count = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), None)
    return first[: min(len(first), len(last))] if count is None else first[:count]


def wrapped_parts(keys: Iterable[str]) -> dict[str, str]:
    """Return what a part of the model is called, by the beginning of its keys with the name of a wrapper around it.

    Of ``features.module.0.weight`` and ``classifier.weight``, ``{"features.module": "features"}``. A layer can be
    called so, too.
    """
    below = defaultdict[str, set[str]](set)
    for key in keys:
        part, _, rest = key.partition(".")
        name, dot, _ = rest.partition(".")
        below[part].add(name if dot else "")
    alike = ((part, next(iter(names))) for part, names in below.items() if len(names) == 1 and part not in WRAPPERS)
    return {f"{part}.{name}": part for part, name in alike if name in USUAL}


def common_front(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the wrapper segments at the start of most keys."""
    counted = Counter(front_of(key) for key in keys)
    return max(counted, key=lambda front: (counted[front], len(front)), default=())


def possible_strips(keys: Iterable[str]) -> Iterator[Strip]:
    """Yield all that could be taken out of these keys, the least first."""
    keys = list(keys)
    fronts = {front_of(key) for key in keys}
    inside = {segment for key in keys for segment in wrappers_in(key)}
    certain = tuple(segment for segment in WRAPPER_NAMES if segment in inside)
    options = {(), certain, (*certain, *(segment for segment in USUAL if segment in inside))}
    starts = {front[:count] for front in sorted(fronts, key=len)[-MOST_FRONTS:] for count in range(len(front) + 1)}
    yield from sorted(
        (Strip(front, option) for front in starts for option in options),
        key=lambda strip: (
            any(segment in USUAL for segment in strip.inside),
            len(strip.front) + len(strip.inside),
            len(strip.inside),
            strip.front,
            strip.inside,
        ),
    )
