"""What is said of a line of the ledger, and of where something was called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Evidence,
    Exchange,
    Place,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .sheets import Line, Print, Sheet


def line_of(exchange: Exchange) -> Place:
    """Return the line that exchanges."""
    return Place(file=exchange.file, line=exchange.line)


def caller_of(exchange: Exchange, step: Sheet) -> Place:
    """Return the line, of the function that steps, that has come to an exchange."""
    site = next(iter(step.ranks.values())).site
    return Place(file=site.file, line=exchange.caller) if site and exchange.caller else line_of(exchange)


def norms(line: Line, prints: Sequence[Print | None]) -> str:
    """Return how large a gradient is on each rank, in words."""
    return f"{line.name}: " + ", ".join(
        f"{each[-1]:.4g} on rank {rank}" for rank, each in enumerate(prints[:8]) if each
    )


def seen(line: Line, step: Sheet) -> tuple[Evidence, Evidence]:
    """Return what the ranks have computed of a gradient, and what their optimizers were given."""
    where = f"rank 0 to {len(step.ranks) - 1}, step {step.number}"
    return (
        Evidence(f"gradient that backward left, {norms(line, line.local)}", "", where),
        Evidence(f"gradient that the step is given, {norms(line, line.given)}", "the same on all ranks", where),
    )
