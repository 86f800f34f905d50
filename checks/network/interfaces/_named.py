"""The interfaces of this host that variables name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Facts


def usable(facts: Facts) -> tuple[str, ...]:
    """Return the names of the interfaces that are up and have an address."""
    return tuple(each.name for each in facts.network.interfaces if each.up and each.addresses)


def missing(facts: Facts, variable: str) -> str:
    """Return the first interface of a variable's list that cannot be used, or is not there; empty if there is none."""
    named = (name for name in facts.environ.get(variable, "").split(",") if name)
    return next((name for name in named if name not in usable(facts)), "")
