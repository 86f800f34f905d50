"""What the user wants the keys to be called, as a function from old names to new ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.contents import subscript
from ddpdoctor.checkpoint.keys import (
    AVERAGE,
    FEW_PARTS,
    PREFIXES,
    USUAL,
    Strip,
    assumed_strip,
    counter_in,
    front_of,
    is_averaged,
    is_flat,
    within_average,
    wrapped_parts,
)
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
USUAL_NAMES = frozenset(USUAL)


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

    @property
    def for_one(self) -> bool:
        """Whether they give other names to any keys, and not only to those that have a prefix."""
        return bool(self.front or self.regex or self.rename or self.add)

    def taken(self, names: Sequence[str]) -> tuple[list[str], str]:
        """Take names through the steps that the user spelled out; give the new ones, and which step found nothing."""
        new, idle = list(names), []
        for change, nothing in self._steps():
            before, new = new, list(map(change, new))
            if new == before:
                idle.append(nothing)
        return [self.add + name for name in new], "; ".join(idle)

    def _steps(self) -> Iterator[tuple[Callable[[str], str], str]]:
        """Yield each step, as a function of a name, and what is to be said where it changes none."""
        for prefix in self.strip:
            yield partial(_without_front, prefix), f"no key begins with {prefix}"
        for pattern, replacement in self.regex:
            yield partial(pattern.sub, replacement), f"--regex {pattern.pattern}={replacement} changes no key"
        for old, new in self.rename:
            yield partial(_renamed, old, new), f"no key is called {old}, or begins with {_dotted(old)}"


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


def _without_front(prefix: str, name: str) -> str:
    return name.removeprefix(prefix)


def _renamed(old: str, new: str, name: str) -> str:
    if name == old:
        return new
    if not name.startswith(_dotted(old)):
        return name
    return _dotted(new) + name[len(_dotted(old)) :]


def _dotted(prefix: str) -> str:
    return f"{prefix}." if prefix and not prefix.endswith(".") else prefix


def why_left_alone(state_dict: StateDict, wanted: Rules) -> str:
    """Return why the keys of a state dict are not taken for those of a wrapped model; empty where they can be."""
    keys = state_dict.keys
    if wanted.spelled_out:
        return ""
    if is_averaged(keys) and (wanted.front or not within_average(keys).segments):
        return "it is the state of an AveragedModel, whose keys these are (--strip module. takes the prefix off)"
    if any(map(is_flat, keys)):
        return "it holds flat parameters of FSDP, which only the same FSDP model loads"
    return ""


def new_names(state_dict: StateDict, names: Sequence[str], wanted: Rules) -> tuple[list[str], str]:
    """Return the new names of these keys, and what was assumed.

    Raises:
        BadTarget: some of the keys have the prefix of a wrapper, and others have not; or all have what is to be added.
    """
    if wanted.spelled_out:
        return wanted.taken(names)
    if counter := counter_in(state_dict.keys):
        strip = within_average(state_dict.keys)
        inside = [name if name == counter else AVERAGE + strip(name.removeprefix(AVERAGE)) for name in names]
        return inside, _taken(strip, wanted)
    strip = assumed_strip(names)
    note = _assumed(state_dict, names, strip, wanted)
    prefix = "".join(f"{segment}." for segment in wanted.front)
    new = strip.of_all(names)
    if "model" in wanted.front and all(name.startswith("model.") for name in new):
        raise BadTarget(f"all {len(new)} keys begin with model. already; --add {prefix} puts another before them")
    return [prefix + name for name in new] if prefix else new, note


def marked(names: Sequence[str]) -> list[str]:
    """Return the names that begin with a wrapper which a layer can be called like, too."""
    return [name for name in names if name.startswith(PREFIXES) and not USUAL_NAMES.isdisjoint(front_of(name))]


def _left_inside(parts: Mapping[str, str]) -> str:
    """Return what is left where a wrapper is around parts of the model, or layers are called as if one were."""
    if not parts:
        return ""
    options = " ".join(f"--map {shlex.quote(f'{old}={new}')}" for old, new in parts.items())
    if len(parts) > FEW_PARTS:
        options = "--model TARGET:NAME, the bare model,"
    more = f" and {len(parts) - FEW_PARTS} more" if len(parts) > FEW_PARTS else ""
    them = "it" if len(parts) == 1 else "them"
    return f"{', '.join([*parts][:FEW_PARTS])}{more}: taken for layers that are called so; {options} takes {them} off"


def _taken(strip: Strip, wanted: Rules) -> str:
    """Return what is assumed where names that a layer can have are taken off."""
    taken = [segment for segment in strip.front if segment in USUAL and strip.front != wanted.front]
    called = " or ".join(dict.fromkeys(taken))
    return f"assumed that no layer of the model itself is called {called}" if called else ""


def _assumed(state_dict: StateDict, names: Sequence[str], strip: Strip, wanted: Rules) -> str:
    """Return what is assumed about layers that are called like a wrapper."""
    if strip.front:
        return _taken(strip, wanted)
    some_of_them = marked(names)
    if not some_of_them:
        return _left_inside(wrapped_parts(names))
    front = front_of(some_of_them[0])
    other = next(name for name in names if front_of(name)[:1] != front[:1])
    segment = next(segment for segment in front if segment in USUAL)
    some = f"{segment}. is before {len(some_of_them)} of {len(names)} keys, not before {other}"
    if state_dict.metadata is not None and {name.rpartition(".")[0] for name in names} <= {*state_dict.metadata}:
        return f"{some}: taken for a layer that is called {segment}, as _metadata has all of them"
    where, prefix = subscript("ckpt", state_dict.location), f"{'.'.join(front)}."
    if doubled := {*names}.intersection(name.removeprefix(prefix) for name in some_of_them):
        raise BadTarget(f"{where}: {some}, and {min(doubled)} is there with it and without it")
    raise BadTarget(f"{where}: {some}; --strip {prefix} takes it off where it is")
