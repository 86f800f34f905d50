"""Numbers that the user's code has given to words: labels, tokens; as the ranks can compare them.

They are looked for once, in what the functions that train hold in their variables: nothing is changed, and nothing is
called.
"""

from __future__ import annotations

import heapq
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ddpdoctor.watch.events import Numbered
from ddpdoctor.watch.user_frames import frames, is_users, site_of, variables_of

if TYPE_CHECKING:
    from types import FrameType

    from ddpdoctor.watch.rank.process import Process

FEWEST, MOST = 3, 200_000  # words
LOOKED_AT = 200  # objects
DEEPEST = 3
SAMPLE = 64
SPECIAL, MANY = 16, 16  # tokens of a meaning of their own; words
LISTS = re.compile("class|label|vocab|categor", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Numberings:
    """Tells of them right before the first step of an optimizer."""

    recorder: Process

    def tell(self) -> None:
        """Look into the user's functions that are being executed."""
        if self.recorder.log is None:
            return
        looked: set[int] = set()
        for frame in frames():
            if is_users(frame.f_code.co_filename):
                for name, words in _held_by(frame, looked):
                    least = heapq.nsmallest(SAMPLE, words, key=_hash)
                    self.recorder.emit(
                        Numbered,
                        name=name,
                        size=len(words),
                        sample=tuple((_hash(word), words[word]) for word in least),
                        first=tuple(f"{word!s:.40}: {words[word]}" for word in least[:4]),
                        site=site_of(frame),
                    )


def _hash(word: str) -> int:
    return crc32(word.encode(errors="replace"))


def _held_by(frame: FrameType, looked: set[int]) -> Iterator[tuple[str, dict[str, int]]]:
    for name, value in variables_of(frame).items():
        if not name.startswith("__"):
            yield from _found(name, value, looked)


def _found(name: str, value: Any, looked: set[int], depth: int = 0) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the numberings that a variable holds, itself or in the attributes of objects of the user's classes."""
    if len(looked) >= LOOKED_AT or depth > DEEPEST or id(value) in looked:
        return
    if isinstance(value, (dict, list)):
        looked.add(id(value))
        words = _numbering(name, value)
        if words:
            yield name, words
        return
    attributes = _attributes(value)
    if attributes:
        looked.add(id(value))
        for attribute, each in [*attributes.items()]:
            yield from _found(f"{name}.{attribute}", each, looked, depth + 1)


def _attributes(value: Any) -> dict[str, Any]:
    """Return what an object of a class of the user's holds; of a loader and of a Subset, the data set."""
    kind = type(value)
    if kind.__module__.startswith("torch.utils.data"):
        return {"dataset": vars(value)["dataset"]} if "dataset" in getattr(value, "__dict__", {}) else {}
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    own = kind.__module__ == "__main__" or (file is not None and is_users(file))
    held = getattr(value, "__dict__", None)
    return held if own and isinstance(held, dict) and not isinstance(value, type) else {}


def _numbering(name: str, value: Any) -> dict[str, int] | None:
    """Return words with numbers from 0, or 1, without a gap; a list of classes numbers them by their places.

    Of many words the first numbers can be those of tokens with a meaning of their own, which are no words.
    """
    if not FEWEST <= len(value) <= MOST:
        return None
    if isinstance(value, list):
        if not LISTS.search(name) or not all(type(each) is str for each in value) or len(set(value)) < len(value):
            return None
        return {each: at for at, each in enumerate(value)}
    numbers = list(value.values())
    if type(numbers[0]) is not int or not all(type(key) is str for key in value):
        return None
    if not all(type(number) is int for number in numbers) or len(set(numbers)) < len(numbers):
        return None
    first = min(numbers)
    begins = first in {0, 1} or (0 < first <= SPECIAL and len(numbers) >= MANY)
    return dict(value) if begins and max(numbers) - first == len(numbers) - 1 else None
