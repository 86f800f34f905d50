"""What the link between two ranks carries without torch's collectives, as these ranks measure it."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 20  # bytes
LINK = 1 << 27  # bytes that are sent to measure a link


def link() -> float:
    """Return the bytes a second that reach rank 1 from rank 0 without torch's collectives; nan on the other ranks.

    Over gloo it is one TCP connection over loopback; over NCCL a copy from one GPU to the other.
    """
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    if dist.get_backend() == "nccl":
        source = torch.ones(LINK // 4, device="cuda:0") if rank == 0 else None
        dist.barrier()
        return _copied(source) if source is not None else float("nan")
    with socket.socket() as listener:
        port = torch.zeros(1, dtype=torch.int64)  # objects could only be sent where numpy is installed
        if rank == 0:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            port[0] = listener.getsockname()[1]
        dist.broadcast(port, 0)
        if rank == 0:
            return _sent(listener)
        if rank == 1:
            _read(int(port))
    return float("nan")


def _copied(source: Tensor) -> float:
    import torch

    target = torch.empty_like(source, device="cuda:1")
    target.copy_(source)
    torch.cuda.synchronize()
    started = time.perf_counter()
    target.copy_(source)
    torch.cuda.synchronize()
    return LINK / (time.perf_counter() - started)


def _sent(listener: socket.socket) -> float:
    listener.settimeout(20)
    connection, _ = listener.accept()
    with connection:
        chunk = bytes(CHUNK)
        started = time.perf_counter()
        for _ in range(LINK // CHUNK):
            connection.sendall(chunk)
        connection.recv(1)  # when all of it is read
        return LINK / (time.perf_counter() - started)


def _read(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        buffer, left = bytearray(CHUNK), LINK
        while left:
            got = connection.recv_into(buffer)
            if not got:
                raise ConnectionError("the other end closed the connection early")
            left -= got
        connection.sendall(b"!")
