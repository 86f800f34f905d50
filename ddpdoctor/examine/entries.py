"""What a small list, tuple or dict of an object holds, each with where it is."""

from __future__ import annotations

from typing import Any

LISTED = 16  # entries of a list, or of a dict


def entries(where: str, value: Any, *, keys: tuple[type, ...] = ()) -> list[tuple[str, Any]]:
    """Return the entries of a value at ``where``, or the value itself; of a dict, those of these types of keys."""
    if type(value) in {list, tuple} and len(value) <= LISTED:
        return [(f"{where}[{at}]", each) for at, each in enumerate(value)]
    if type(value) is dict and len(value) <= LISTED:
        return [(f"{where}[{key!r}]", each) for key, each in value.items() if not keys or type(key) in keys]
    return [(where, value)]
