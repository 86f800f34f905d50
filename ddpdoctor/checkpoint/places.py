"""How users write where a state dict stands in a file: ``netG``, ``net.g``, ``["a.b"]["c"]``; ``.`` is the root."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from ddpdoctor.checkpoint.contents import Location, StateDict, subscript
from ddpdoctor.facets import BadTarget
from ddpdoctor.shell import shell_quote

ROOT = "."
MOST = 4  # that a line names
UNICODE = "utf-8"  # standard error spells out what it cannot show


def at_text(location: Location) -> str:
    """Return a location as the option --at takes it."""
    words = [step for step in location if isinstance(step, str) and step and not set(step) & set(".[]")]
    if len(words) == len(location):
        return ".".join(words) or ROOT
    return subscript("", location)


def offered(state_dicts: Iterable[StateDict]) -> str:
    """Return the options that name these state dicts, as they are pasted."""
    options = [f"--at {shell_quote(at_text(each.location), UNICODE)}" for each in state_dicts]
    return ", ".join(options[:MOST]) + (f" and {len(options) - MOST} more" if len(options) > MOST else "")


def at_places(state_dicts: Sequence[StateDict], places: Iterable[str]) -> tuple[StateDict, ...]:
    """Return the state dicts that a user named.

    Raises:
        BadTarget: at one of these places is none.
    """
    wanted = set()
    for text in places:
        found = [each.location for each in state_dicts if _is_at(each.location, text)]
        if not found:
            raise BadTarget(f"there is no state dict at {text}; it has {offered(state_dicts)}")
        wanted.update(found)
    return tuple(each for each in state_dicts if each.location in wanted)


def _is_at(location: Location, text: str) -> bool:
    if text.startswith(("[", "ckpt[")):
        return location == _subscripted(text)
    if text == "ckpt" and not location:
        return True
    return text == at_text(location) or [str(step) for step in location] == text.split(".")


def _subscripted(text: str) -> Location | None:
    """Read ``["a"][0]``; None when it is no such thing."""
    steps: list[str | int] = []
    try:
        node = ast.parse(text if text.startswith("ckpt") else f"ckpt{text}", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    while isinstance(node, ast.Subscript):
        if not (isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, (str, int))):
            return None
        steps.append(node.slice.value)
        node = node.value
    return tuple(steps[::-1]) if isinstance(node, ast.Name) else None
