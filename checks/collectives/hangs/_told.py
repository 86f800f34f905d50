"""How a hang is told: where each rank is, and the table of their last communications."""

from __future__ import annotations

from pathlib import Path

from ddpdoctor.check import (
    Doing,
    Evidence,
    PeerLost,
    Position,
    Site,
    Stalled,
    Table,
    question,
)

from ._messages import BY_HANDLE, begun

RECENT = 4  # communications of a rank that a report shows


def noticed(event: PeerLost) -> tuple[Evidence, ...]:
    """Return what the first rank said that lost another one, if one did."""
    return tuple(Evidence(each.said, "", f"rank {each.rank}") for each in event.others[:1])


def where(position: Position) -> str:
    """Return in words what a rank does."""
    at = f" at {short(position.site)}" if position.site else ""
    if position.doing is Doing.WAITING:
        return f"waits in {position.operation}{at}{_begun(position)}"
    own = f" in {position.site.function}" if position.site and position.site.function != "<module>" else ""
    inside = f", inside {position.function}" if position.function else ""
    asks = position.doing is not Doing.ASKING or (position.site and question(position.site.file, position.site.line))
    return f"{position.doing.value if asks else 'resting and running in turns'}{own}{at}{inside}"


def short(site: Site | None) -> str:
    """Return a line without the folders."""
    return f"{Path(site.file).name}:{site.line}" if site else ""


def seen(event: Stalled) -> tuple[Evidence, ...]:
    """Return what each rank does, and what it did last."""
    return tuple(
        Evidence(where(position), "", f"rank {position.rank}, for {position.seconds:.0f} s") for position in event.ranks
    ) + tuple(
        Evidence(f"under way: {position.pending[0]}", "", f"rank {position.rank}, torch's flight recorder")
        for position in event.ranks
        if position.pending and len({each.pending[:1] for each in event.ranks}) > 1
    )


def table(event: Stalled) -> Table | None:
    """List each rank's last communications: a mismatched pair often shows at a later, innocent one.

    None where nothing is known of them.
    """
    if event.outside:
        return None
    return Table(
        ("rank", "steps", "batches", "last communications, latest last"),
        tuple(
            (
                position.rank,
                position.steps,
                position.batches,
                ", ".join(
                    f"{each.operation}{f'({each.shapes})' if each.shapes else ''} {short(each.site)}".strip()
                    for each in position.recent[-RECENT:]
                )
                or "none",
            )
            for position in event.ranks
        ),
    )


def _begun(position: Position) -> str:
    """Return where the communication was begun that a rank waits for by its handle."""
    call = begun(position) if position.operation.startswith(BY_HANDLE) else None
    site = call.site if call is not None else None
    return f", begun at {short(site)}" if site is not None and site != position.site else ""
