"""What the user wants the keys to be called, as a function from old names to new ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.keys import USUAL, assumed_strip, common_front, front_of, is_averaged, is_flat
from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import StateDict

WRAPPERS = {
    "bare": (),
    "dp": ("module",),
    "ddp": ("module",),
    "compile": ("_orig_mod",),
    "fabric": ("_forward_module",),
    "lightning": ("model",),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """``front`` are the segments to put before bare keys; the rest are the user's own steps, in this order."""

    front: tuple[str, ...] = ()
    strip: tuple[str, ...] = ()
    regex: tuple[tuple[re.Pattern[str], str], ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    add: str = ""

    @property
    def spelled_out(self) -> bool:
        """Whether the user named the steps."""
        return bool(self.strip or self.regex or self.rename or self.add)

    def steps(self, key: str) -> str:
        """Take a key through the steps that the user named."""
        for prefix in self.strip:
            key = key.removeprefix(prefix)
        for pattern, replacement in self.regex:
            key = pattern.sub(replacement, key)
        for old, new in self.rename:
            if key == old or key.startswith(f"{old}."):
                key = new + key[len(old) :]
        return self.add + key


def rules(
    to: str, strip: Iterable[str], add: str, rename: Iterable[tuple[str, str]], regex: Iterable[tuple[str, str]]
) -> Rules:
    """Read what the user wrote.

    Raises:
        BadTarget: a wrapper is unknown, or a regular expression is none.
    """
    front: list[str] = []
    for name in to.split(","):
        if name.strip() not in WRAPPERS:
            raise BadTarget(f"--to {to}: {name.strip()!r} is none of {', '.join(WRAPPERS)}")
        front += WRAPPERS[name.strip()]
    patterns = []
    for pattern, replacement in regex:
        try:
            compiled = re.compile(pattern)
            compiled.sub(replacement, "")
            re.compile(f"(?:{pattern})|").sub(replacement, "")  # a group that does not exist shows in a match only
        except (re.error, RecursionError, OverflowError, IndexError) as exc:
            raise BadTarget(f"--regex {pattern}={replacement}: {exc}") from None
        patterns.append((compiled, replacement))
    return Rules(tuple(front), tuple(map(_dotted, strip)), tuple(patterns), tuple(rename), _dotted(add))


def _dotted(prefix: str) -> str:
    return f"{prefix}." if prefix and not prefix.endswith(".") else prefix


def new_names(state_dict: StateDict, names: Sequence[str], wanted: Rules) -> tuple[list[str], str]:
    """Return the new names of these keys, and what was assumed, or why they stay as they are."""
    if wanted.spelled_out:
        return [wanted.steps(name) for name in names], ""
    keys = state_dict.keys
    if is_averaged(keys):
        return list(names), "left alone: the state of an AveragedModel, whose keys these are (--strip module. to force)"
    if any(map(is_flat, keys)):
        return list(names), "left alone: flat parameters of FSDP, which only the same FSDP model loads"
    strip = assumed_strip(keys)
    front = () if strip.front else common_front(keys)
    if any(segment in USUAL for segment in front):
        mixed = [key for key in keys if front_of(key)[: len(front)] != front]
        some = f"{'.'.join(front)}. is before {len(keys) - len(mixed)} of {len(keys)} keys, not before {mixed[0]}"
        return list(names), f"left alone: {some} (--strip {'.'.join(front)}. to force)"
    prefix = "".join(f"{segment}." for segment in wanted.front)
    new = [prefix + strip(name) for name in names]
    taken = [segment for segment in strip.front if segment in USUAL and strip.front != wanted.front]
    return (
        new,
        f"assumed that no layer of the model itself is called {' or '.join(dict.fromkeys(taken))}" if taken else "",
    )
