"""An option of torchrun's rendezvous that the hosts were given differently."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ddpdoctor.check import Evidence, Host

from ..._hosts.cluster import groups

SHOWN = 4  # hosts with one value


@dataclass(frozen=True, slots=True)
class Difference:
    """What most hosts were given, and one of them; another value, and a host that has it; what each was given."""

    usual: str
    like: Host
    other: str
    odd: Host
    evidence: tuple[Evidence, ...]


def difference(hosts: Iterable[Host], option: Callable[[Host], str], said: Callable[[str], str]) -> Difference | None:
    """Return how the hosts differ in an option, which ``said`` writes as it is typed; None where they do not."""
    values = groups(hosts, lambda host: option(host) or None)
    if len(values) < 2:  # noqa: PLR2004 - to differ takes two
        return None
    (usual, same), (other, others), *_ = values
    evidence = tuple(
        Evidence(f"{host.name}: {said(value)}", "the same on all hosts", host.launcher)
        for value, its in values
        for host in its[:SHOWN]
    )
    return Difference(usual, same[0], other, others[0], evidence)
