"""Where the hosts meet: one serves at the master's address and port, the others come there, each with a deadline."""

from __future__ import annotations

import contextlib
import errno
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.cluster.meet.coming import closed, come, places, unmet
from ddpdoctor.cluster.meet.serving import serve
from ddpdoctor.cluster.wire.client import NO_STORE, Try
from ddpdoctor.cluster.wire.server import Server
from ddpdoctor.host.network import is_loopback

if TYPE_CHECKING:
    from ddpdoctor.cluster.meet.meeting import Board, Invitation, Meeting

ALONE = 10.0  # seconds after which a rank 0 that does not own the master's address serves itself: a NAT leads to it


def meet(invitation: Invitation, stack: ExitStack) -> Meeting:
    """Meet the other hosts; connections stay open until the stack ends."""
    host, network = invitation.host, invitation.network
    addresses = network.resolve(host.master).addresses if host.master else ()
    if invitation.board is not None:
        return _through(invitation.board, invitation, stack, ours=any(map(network.owns, addresses)))
    if any(network.owns(address) for address in addresses):
        if host.node and all(map(is_loopback, addresses)):
            return unmet(invitation, ())  # the master is elsewhere, and this address leads nowhere else
        return _serve_or_come(invitation, stack)
    patience = ALONE if host.node == 0 else invitation.wait
    meeting = come(invitation, stack, patience)
    if not meeting.cluster.met and host.node == 0 and addresses:
        with contextlib.suppress(OSError):
            server = stack.enter_context(Server(host.port, invitation.token, invitation.expected))
            served = serve(replace(invitation, wait=invitation.wait - ALONE), server)
            served.cluster = replace(served.cluster, tries=meeting.cluster.tries)
            return served
    return meeting


def _through(board: Board, invitation: Invitation, stack: ExitStack, *, ours: bool) -> Meeting:
    """Meet at a port that the kernel picks, since torchrun's agent holds the master's, and say so in its store."""
    started = time.monotonic()
    try:
        if ours:
            server = stack.enter_context(Server(0, invitation.token, invitation.expected))
            board.put(server.port)
            return serve(invitation, server)
        if tries := closed(invitation, started):
            return unmet(invitation, tries, time.monotonic() - started)
        port = board.get(invitation.wait)
    except OSError as exc:
        tried = Try(invitation.host.master, invitation.host.port, NO_STORE, str(exc))
        return unmet(invitation, (tried,), time.monotonic() - started)
    meeting = come(invitation, stack, max(1.0, started + invitation.wait - time.monotonic()), (port,))
    if not meeting.cluster.met:
        meeting.cluster = replace(meeting.cluster, announced=port)
    return meeting


def _serve_or_come(invitation: Invitation, stack: ExitStack) -> Meeting:
    port = invitation.host.port
    try:
        return serve(invitation, stack.enter_context(Server(port, invitation.token, invitation.expected)))
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            raise
    meeting = come(invitation, stack, 0)  # another process of this launch on this host may serve there
    if meeting.cluster.met:
        return meeting
    for other in places(port)[1:]:
        with contextlib.suppress(OSError):
            return serve(invitation, stack.enter_context(Server(other, invitation.token, invitation.expected)))
    return meeting
