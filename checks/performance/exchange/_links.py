"""Links to other hosts, by what the kernel of this one counts: how fast they are while there is something to send."""

from __future__ import annotations

from ddpdoctor.check import Evidence, LinkUse, Profiled, Training, human_size

MUCH = 0.3  # of the time
LEAST = 0.01  # seconds of a step
SLOW, SLOW_UNKNOWN = 50e6, 12.5e6  # bytes a second: half a gigabit; a tenth where the interface does not say its speed
TENTH = 1e6 / 8 / 10  # bytes a second, of a megabit: of what the interface says


def slow_link(told: Profiled) -> LinkUse | None:
    """Return the link that has something to send for much of the time, and carries little meanwhile."""
    steps = max(1, len(told.total))
    for each in told.links:
        if each.busy >= max(MUCH * told.window, LEAST * 1e9 * steps) and is_slow(each):
            return each
    return None


def is_slow(link: LinkUse) -> bool:
    """Whether a link carries little, of what its interface says and of what a training needs."""
    return link.rate < (min(SLOW, link.speed * TENTH) if link.speed else SLOW_UNKNOWN)


def said_by_interface(link: LinkUse) -> str:
    """Return what a link's interface says that it carries; empty where it says nothing."""
    return f"{link.interface} says that it carries {link.speed:,} Mbit/s" if link.speed else ""


def busy_in_step(told: Profiled) -> float:
    """Return for how many seconds of a step a rank has something to send to another host."""
    return max((each.busy for each in told.links), default=0) / 1e9 / max(1, len(told.total))


def slow_links(training: Training) -> dict[int, LinkUse]:
    """Return by rank the link of this host that is slow."""
    found = ((rank, slow_link(each)) for rank, each in training.by_rank(Profiled).items())
    return {rank: link for rank, link in found if link is not None}


def seen(rank: int, told: Profiled, link: LinkUse, expected: str = "") -> Evidence:
    """Return what a link carried, and for how long there was something to send."""
    steps = max(1, len(told.total))
    over = f" over {link.interface}" if link.interface else ""
    return Evidence(
        f"{human_size(link.sent // steps)} a step to {link.peer}{over}, at {rate_text(link.rate)} while there was "
        f"something to send: {link.busy / max(1, told.window):.0%} of the time",
        expected,
        f"rank {rank}, {steps} steps",
    )


def rate_text(rate: float) -> str:
    """Show bytes a second as people speak of links."""
    return f"{_number(rate / 1e6)} MB/s ({_number(8 * rate / 1e6)} Mbit/s)"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits
