"""Whether a host that acknowledges nothing on the connections of the ranks answers a small packet."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.host.process.connections import Peer

DISCARD = 9  # nobody listens there (RFC 863), and no rank is disturbed: a refusal is an answer as well
PATIENCE = 2.0  # seconds: the first packet is sent again after one
MOST = 4  # hosts: one answer tells


def answering(peers: Iterable[Peer]) -> tuple[Peer, ...]:
    """Ask the silent ones: what is lost on the way by its size alone, or with one connection, is no host that is down.

    From the address that the ranks use, so that it goes the same way.
    """
    found = list(peers)
    silent = [each for each in found if each.silent and not (each.down or each.left or each.connecting)][:MOST]
    return tuple(replace(each, answers=True) if each in silent and _answers(each) else each for each in found)


def _answers(peer: Peer) -> bool:
    with suppress(OSError):
        try:
            socket.create_connection((peer.peer, DISCARD), PATIENCE, (peer.local, 0)).close()
        except ConnectionRefusedError:
            return True
        return True
    return False
