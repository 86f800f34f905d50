"""The rendezvous of a script job: a store as torchrun's agent hosts it, and the variables that torchrun sets."""

from __future__ import annotations

import os
import signal
import socket

from ddpdoctor.jobs.rank import PR_SET_PDEATHSIG, prctl


def host_store() -> tuple[int, int]:
    """Fork a process that hosts the ranks' TCPStore, as torchrun's agent does; return its pid and port.

    It listens on loopback only, on a port that the kernel chose: nobody can take it first.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == server:
                _keep_store(listener, port)
        finally:
            os._exit(70)
    listener.close()
    return pid, port


def _keep_store(listener: socket.socket, port: int) -> None:
    import torch.distributed as dist

    os.setsid()
    store = dist.TCPStore(  # type: ignore[attr-defined]  # torch exports it, but not to type checkers
        "127.0.0.1",
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
        use_libuv=False,  # torch 2.4 to 2.6: "The libuv TCPStore backend does not support ... an listen fd"
    )
    while store is not None:
        signal.pause()


def torchrun_environ(ranks: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun sets for the ranks of one node, but for the ranks' own."""
    return {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "ROLE_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "ddpdoctor",
    }
