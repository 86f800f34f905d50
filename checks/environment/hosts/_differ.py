"""What each host has under a name, where that is not the same on all hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence

from ..._hosts.cluster import groups

if TYPE_CHECKING:
    from ddpdoctor.check import Host

EACH = 4  # hosts with one value that are shown


@dataclass(frozen=True)
class Difference:
    """The values of one name with the hosts that have them, the most frequent value first."""

    name: str
    values: list[tuple[str, list[Host]]]

    @property
    def usual(self) -> str:
        """What most hosts have."""
        return self.values[0][0]

    @property
    def same(self) -> Host:
        """A host that has what most have."""
        return self.values[0][1][0]

    @property
    def odd(self) -> Host:
        """A host that has something else."""
        return self.values[1][1][0]

    @property
    def message(self) -> str:
        """Say which hosts have what."""
        said = (f"{value or 'not set'} on {', '.join(host.name for host in hosts[:8])}" for value, hosts in self.values)
        return f"{self.name} differs: {'; '.join(said)}"

    def evidence(self, between: str) -> tuple[Evidence, ...]:
        """Return the value of each host, with so much between the name and it."""
        return tuple(
            Evidence(f"{self.name}{between}{value}", "the same on all hosts", host.place)
            for value, hosts in self.values
            for host in hosts[:EACH]
        )


def differences(
    hosts: Iterable[Host], names: Callable[[Host], Iterable[str]], value: Callable[[str, Host], str | None]
) -> Iterator[Difference]:
    """Yield the names that hosts have with different values; those whose value is None are left out."""
    hosts = tuple(hosts)
    for name in sorted({name for host in hosts for name in names(host)}):
        values = groups(hosts, partial(value, name))
        if len(values) > 1:
            yield Difference(name, values)
