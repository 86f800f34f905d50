"""Whether the place where the ranks are to meet has a name that this host knows."""

from __future__ import annotations

from collections.abc import Iterable

from ddpdoctor.host.network import NO_ANSWER, resolve
from ddpdoctor.watch.events import Joined, Joining
from ddpdoctor.watch.training import Training


def unresolved(pids: Iterable[int], training: Training) -> tuple[str, str] | tuple[()]:
    """Return the name of the host at which ranks wait in init_process_group, and why it cannot be looked up.

    An answer that is late is none: the name may be known.
    """
    joining = [each for pid in pids for each in training.of(Joining, pid=pid) if not training.of(Joined, pid=pid)]
    for name in dict.fromkeys(map(_name, joining)):
        found = resolve(name) if name else None
        if found is not None and not found.addresses and not found.problem.startswith(NO_ANSWER):
            return name, found.problem
    return ()


def _name(each: Joining) -> str:
    """Return the host of an address; empty where the ranks meet in a file, or it is not known."""
    return "" if each.address.startswith("file:") else each.address.rpartition("//")[2].rpartition(":")[0].strip("[]")
