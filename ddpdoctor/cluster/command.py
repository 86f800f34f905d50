"""Where a launcher of several hosts meets, as its command line says: torchrun, and ``accelerate launch``.

Sources: torch/distributed/run.py, ``get_args_parser`` and ``config_from_args``; torch/distributed/elastic/rendezvous,
whose c10d backend takes port 29400 where none is given; accelerate/commands/launch.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.cluster.launch import DEFAULT_PORT, Launch
from ddpdoctor.source.launching.launcher_options import ACCELERATE, FLAGS as KNOWN, LAUNCH

TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
C10D_PORT = 29400
STATIC = "static"
FLAGS = frozenset(" ".join(KNOWN[each] for each in (LAUNCH, ACCELERATE)).split())


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """How many hosts meet, at least, at which host and port, under which id; ``node`` is this one's number, if any.

    ``launcher`` is its name in the command. ``backend`` is torchrun's: ``static``, ``c10d``, or one that meets
    elsewhere than at a host's port. ``most`` is the greatest number of hosts; 0 where no other number was given.
    """

    launcher: str
    nodes: int
    node: int | None
    host: str
    port: int
    id: str = ""
    backend: str = STATIC
    most: int = 0

    @property
    def at_a_port(self) -> bool:
        """Whether the hosts meet at a port of one of them."""
        return self.backend in {STATIC, "c10d"}


def rendezvous(command: Sequence[str]) -> Rendezvous | None:
    """Read a command line; None where it is no launcher's that can start several hosts."""
    for number, word in enumerate(command[:6]):
        name = Path(word).name
        if name in TORCHRUN:
            return _torchrun(name, options(command[number + 1 :]))
        if name == "accelerate" and command[number + 1 : number + 2] == ["launch"]:
            return _accelerate(name, options(command[number + 2 :]))
    return None


def options(words: Sequence[str]) -> dict[str, str]:
    """Return a launcher's options by their names with hyphens, up to the script."""
    found: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        name = name.lstrip("-").replace("_", "-")
        if not equals and name not in FLAGS and at + 1 < len(words):
            at += 1
            value = words[at]
        found[name] = value
        at += 1
    return found


def launch_of(command: Sequence[str]) -> Launch | None:
    """Return the launch that a command would start on this host; None where it is of one host or does not say where."""
    meeting = rendezvous(command)
    if meeting is None or meeting.nodes < 2 or not meeting.at_a_port:  # noqa: PLR2004 - several
        return None
    return Launch(
        meeting.launcher, f"the options of {meeting.launcher}", meeting.nodes, meeting.node, None, None, None,
        meeting.host, meeting.port, rdzv_id=meeting.id, rdzv_backend=meeting.backend,
    )  # fmt: skip


def told(launch: Launch) -> dict[str, str]:
    """Return what the ranks of a launch that is still to be started will be told of the hosts, by its options."""
    said = {"MASTER_ADDR": launch.master, "MASTER_PORT": str(launch.port), "GROUP_WORLD_SIZE": str(launch.nodes)}
    return said if launch.node is None else {**said, "GROUP_RANK": str(launch.node)}


def _torchrun(name: str, given: dict[str, str]) -> Rendezvous:
    backend = given.get("rdzv-backend", STATIC)
    least, _, most = (given.get("nnodes") or given.get("nnode") or "1").partition(":")
    nodes = _number(least, 1)
    host, port = given.get("master-addr", "127.0.0.1"), _number(given.get("master-port", ""), DEFAULT_PORT)
    if endpoint := given.get("rdzv-endpoint"):
        host, port = _split(endpoint, C10D_PORT if backend == "c10d" else DEFAULT_PORT)
    elif backend == "c10d":
        host, port = "localhost", C10D_PORT
    node = _number(given.get("node-rank", "0"), 0) if backend == STATIC else None
    return Rendezvous(name, nodes, node, host, port, given.get("rdzv-id", ""), backend, _number(most, 0))


def _accelerate(name: str, given: dict[str, str]) -> Rendezvous:
    return Rendezvous(
        name,
        _number(given.get("num-machines", ""), 1),
        _number(given.get("machine-rank", ""), 0),
        given.get("main-process-ip", "127.0.0.1"),
        _number(given.get("main-process-port", ""), DEFAULT_PORT),
        backend=given.get("rdzv-backend", STATIC),
    )


def _split(endpoint: str, default: int) -> tuple[str, int]:
    host, colon, port = endpoint.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        return endpoint.strip("[]"), default
    return host.strip("[]"), _number(port, default)


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else default  # noqa: PLR2004 - no number is
