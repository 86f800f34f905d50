"""What each rank of a job measures: collectives, links, steps of the user's model."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from ddpdoctor.examine.target import Target

REPEATS = 5
MOST = 2_000  # calls in a repetition
CHUNK = 1 << 20  # bytes
LINK = 1 << 27  # bytes that are sent to measure a link


def collectives(operations: Sequence[str], sizes: Sequence[int], seconds: float) -> list[tuple[str, int, list[float]]]:
    """Return the seconds of a call, ``REPEATS`` times, for each operation and size (bytes); each takes ``seconds``."""
    return [(name, size, _timed(_operation(name, size), seconds)) for name in operations for size in sizes]


def _operation(name: str, size: int) -> Callable[[], object]:
    import torch
    import torch.distributed as dist

    tensor = torch.ones(max(1, size // 4), device=_device())
    if name == "all_reduce":
        return lambda: dist.all_reduce(tensor)
    if name == "broadcast":
        return lambda: dist.broadcast(tensor, 0)
    if name == "all_gather":
        parts = [torch.empty(max(1, size // 4 // dist.get_world_size()), device=_device())]
        outputs = [torch.empty_like(parts[0]) for _ in range(dist.get_world_size())]
        return lambda: dist.all_gather(outputs, parts[0])
    return _parameter_server(tensor)


def _parameter_server(tensor: Tensor) -> Callable[[], object]:
    """Let rank 0 receive a tensor from each other rank, add it, and send the sum back."""
    import torch
    import torch.distributed as dist

    others, received = range(1, dist.get_world_size()), torch.empty_like(tensor)

    def serve() -> None:
        total = tensor.clone()
        for rank in others:
            dist.recv(received, rank)
            total += received
        for rank in others:
            dist.send(total, rank)

    def ask() -> None:
        dist.send(tensor, 0)
        dist.recv(received, 0)

    return serve if dist.get_rank() == 0 else ask


def _timed(call: Callable[[], object], seconds: float) -> list[float]:
    import torch
    import torch.distributed as dist

    call()
    once = _seconds(call, 1)
    count = torch.tensor([min(MOST, max(1, int(seconds / REPEATS / once)))], device=_device())
    dist.broadcast(count, 0)
    return [_seconds(call, int(count)) for _ in range(REPEATS)]


def _seconds(call: Callable[[], object], count: int) -> float:
    import torch.distributed as dist

    dist.barrier()
    started = time.perf_counter()
    for _ in range(count):
        call()
    _wait()
    return (time.perf_counter() - started) / count


def _device() -> str:
    import torch
    import torch.distributed as dist

    return f"cuda:{torch.cuda.current_device()}" if dist.get_backend() == "nccl" else "cpu"


def _wait() -> None:
    """Wait for what the GPU still does."""
    import torch
    import torch.distributed as dist

    if dist.get_backend() == "nccl":
        torch.cuda.synchronize()


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
        port = [0]
        if rank == 0:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            port = [listener.getsockname()[1]]
        dist.broadcast_object_list(port)
        if rank == 0:
            return _sent(listener)
        if rank == 1:
            _read(port[0])
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


def steps(target: Target, batch_target: Target, setting: dict[str, Any], seconds: float) -> tuple[float, int, int]:
    """Train for about so many seconds; return the seconds of a step, the bytes of all parameters, the batch size.

    ``setting`` holds the arguments of DDP; ``hook`` a communication hook, ``accumulate`` how many batches a step has,
    and ``bare`` that the model is not wrapped. ``data_parallel``: DataParallel, one process over as many GPUs as there
    are, with a batch of that many ranks, so that the seconds are those of a rank's batch under DDP.
    """
    import torch.distributed as dist

    from ddpdoctor.examine.model.ddp import wrap
    from ddpdoctor.examine.model.rank import build_batch, build_model, plain_step
    from ddpdoctor.examine.model.step import backward, batch_size

    options = dict(setting)
    hook, accumulate, bare = options.pop("hook", None), options.pop("accumulate", 1), options.pop("bare", False)
    over_gpus = options.pop("data_parallel", False)
    model, _ = build_model(target)
    batch = build_batch(batch_target, model)
    first = plain_step(model, batch)
    if first.trouble is not None:
        raise RuntimeError(f"the model takes no step with this batch: {first.trouble}")
    if over_gpus:
        model, batch = _over_gpus(model, batch)
        first = plain_step(model, batch)
        if first.trouble is not None:
            raise RuntimeError(f"the model takes no step under DataParallel: {first.trouble}")
    wrapped = None if bare or over_gpus else wrap(model, options)
    if hook is not None and wrapped is not None:
        wrapped.register_comm_hook(None, _hook(hook))

    def step() -> None:
        for number in range(accumulate):
            if wrapped is not None and number + 1 < accumulate:
                with wrapped.no_sync():
                    backward(model, first.call, batch, wrapped)
            else:
                backward(model, first.call, batch, wrapped)

    for _ in range(3):  # DDP makes its buckets anew after the first
        step()
    once = _seconds(step, 1)
    count = [min(MOST, max(2, int(seconds / once)))]
    dist.broadcast_object_list(count)
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return _seconds(step, count[0]) / accumulate, size, batch_size(batch) or 0


def _over_gpus(model: Any, batch: Any) -> tuple[Any, Any]:
    """Return the model under DataParallel on all GPUs, and a batch with a part for each of them."""
    import torch

    count = torch.cuda.device_count()

    def repeated(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.repeat(count, *[1] * (value.dim() - 1)) if value.dim() else value
        if isinstance(value, dict):
            return {name: repeated(each) for name, each in value.items()}
        return type(value)(map(repeated, value)) if isinstance(value, list | tuple) else value

    return torch.nn.DataParallel(model), repeated(batch)


def _hook(name: str) -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    return getattr(default_hooks, name)
