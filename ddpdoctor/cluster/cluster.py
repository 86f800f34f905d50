"""What was seen of all hosts: the object that checks read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.cluster.wire.client import REFUSED

if TYPE_CHECKING:
    from ddpdoctor.cluster.host import Host
    from ddpdoctor.cluster.matrix import Link
    from ddpdoctor.cluster.wire.client import Try
    from ddpdoctor.cluster.wire.server import Stranger
    from ddpdoctor.host.tcp import LinkUse


DDP_STEP, LAYOUT, MODEL_STEP, GRADIENTS = "DDP", "layout", "a step of the model", "gradients"
"""What a job over all hosts does that is no collective: train a small model; build, run and train the user's."""


SMALL_STEP = "small all_reduce"
"""The first one: of 32 kB, before one of 1 MB."""


@dataclass(frozen=True, slots=True)
class Joint:
    """How a host fared in a job that ran on all of them: ``problem`` is empty where its result was right.

    ``step`` is what the job did when it went wrong: a collective, or one of the words above.
    """

    host: int
    backend: str
    problem: str = ""
    step: str = "all_reduce"


@dataclass(frozen=True, slots=True)
class Throughput:
    """What host ``source`` has sent to host ``target``, while nothing else was to be done."""

    source: int
    target: int
    use: LinkUse


@dataclass(frozen=True, slots=True)
class Cluster:
    """The hosts that met, the one where this is read first; ``expected`` is how many should have.

    ``met`` tells whether there was a meeting; where there was none, ``tries`` are the last to reach the master. A first
    host that does not own the master's address tries it as well, before it becomes the master.
    ``skews`` are the seconds by which each host's clock is ahead of the first one's. ``strangers`` came to the master's
    port with another token, or with no token at all.
    ``carried`` is what the hosts sent each other where the links were measured: none where the jobs did not go well.
    ``sees`` are the hosts, each with one whose file it found in the folder that trainings are saved to.
    ``announced`` is the port at which the first host waits, where torchrun's store told it and it was not reached.
    ``half_open`` are addresses that asked for a connection to the first host when it gave up, and got no answer of it.
    ``late`` came when as many were there as the launch has; one that was told so has those that were there in it.
    """

    hosts: tuple[Host, ...]
    expected: int
    met: bool = True
    links: tuple[Link, ...] = ()
    skews: tuple[float, ...] = ()
    tries: tuple[Try, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    joint: tuple[Joint, ...] = ()
    carried: tuple[Throughput, ...] = ()
    sees: tuple[tuple[int, int], ...] = ()
    waited: float = 0.0
    announced: int = 0
    late: tuple[Host, ...] = ()
    half_open: tuple[str, ...] = ()

    @property
    def translated(self) -> tuple[str, ...]:
        """The addresses of no interface at which all hosts came to this one, and which lead this one to itself."""
        if not self.met or len(self.hosts) < self.expected:
            return ()
        told = {(each.master_at, each.port) for each in self.hosts}
        own = {(each.address, each.port) for each in self.tries if each.ended == REFUSED}
        ((at, port),) = told if len(told) == 1 else (("", 0),)
        return tuple(each for each in at.split() if (each, port) in own)

    @property
    def absent(self) -> tuple[int, ...]:
        """The numbers of the hosts that did not come, where the launch numbers them."""
        return tuple(sorted({*range(self.expected)} - {each.node for each in self.hosts if each.node is not None}))
