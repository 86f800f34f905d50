"""The facts of a host as text, for a bug report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ddpdoctor.redact import redact
from ddpdoctor.report.text import printable


def facts_text(facts: Mapping[str, Any]) -> str:
    """Return nested facts as indented lines, without secrets."""
    return printable(redact("\n".join(_lines(facts, 0))))


def _lines(value: Any, depth: int) -> Iterator[str]:
    margin = "  " * depth
    if isinstance(value, Mapping):
        for name, item in value.items():
            if isinstance(item, (Mapping, list, tuple)) and item:
                yield f"{margin}{name}:"
                yield from _lines(item, depth + 1)
            else:
                yield f"{margin}{name}: {_short(item)}"
    elif isinstance(value, (list, tuple)):
        for item in value:
            nested = isinstance(item, (Mapping, list, tuple))
            yield (
                f"{margin}- {', '.join(f'{k}={v}' for k, v in item.items())}"
                if isinstance(item, Mapping)
                else (f"{margin}- {', '.join(map(str, item))}" if nested else f"{margin}- {item}")
            )
    else:
        yield f"{margin}{value}"


def _short(item: Any) -> str:
    return "none" if item is None or item in ((), [], {}) else str(item)
