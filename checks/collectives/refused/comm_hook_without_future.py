"""A communication hook of DDP returns a tensor where DDP waits for a future.

## What happens

DDP calls the hook that `register_comm_hook` was given for each bucket of gradients, in the middle of backward, and goes
on at once: the hook has to return a `torch.futures.Future` that will hold the bucket's new contents. One that calls a
collective, waits for it and returns the tensor ends backward with "DDP communication hook's callback must return a
torch.futures.Future object, but got torch.Tensor", below a complaint of pybind11 about a cast.

## How to be sure

The message has no other cause; it names the type that was returned.

## How to mend it

Start the collective with `async_op=True`, and return its future, with `.then` for what follows. A result that is there
already is put into a future of its own.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "DDP Communication Hooks";
torch/csrc/distributed/c10d/python_comm_hook.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP707", Severity.ERROR)


@log_pattern(r"callback must return a torch\.futures\.Future object, but got (?P<got>[\w.]+)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what the hook returned."""
    yield Finding(
        f"the communication hook of DDP returns {match['got']}, and has to return a future",
        (record.proof(match, "torch.futures.Future of the bucket's tensor"),),
        Fix(
            "start the collective without waiting for it, and return its future",
            diff="-dist.all_reduce(tensor)\n-return tensor.div_(dist.get_world_size())\n"
            "+tensor.div_(dist.get_world_size())\n+work = dist.all_reduce(tensor, async_op=True)\n"
            "+return work.get_future().then(lambda future: future.value()[0])",
        ),
        record.place,
    )
