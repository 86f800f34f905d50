"""A second forward overwrites buffers that the first one's backward needs.

At the start of each forward DDP copies rank 0's buffers into those of the other ranks, in place. If a forward
saved a buffer for its backward (it multiplied by it, say), a second forward before that backward changes the
saved value on every rank but 0. Older torch raises "one of the variables needed for gradient computation has
been modified by an inplace operation". Since DDP hides its copy from that protection (seen in torch 2.13),
nothing is raised: the gradients are silently wrong. It takes a buffer that differs between ranks when it is
overwritten, such as a running statistic that forward replaces by a new tensor. Batch normalisation is not
affected: its backward does not use the buffers.

How to be sure: ddpdoctor calls the model twice, bare and under DDP, and compares the buffers that autograd
saved in the first call before and after the second. It is an error where the factory's file calls the wrapped
model twice before backward; where it is not seen to, this is a note for whoever will.

How to mend it: put both inputs through one forward (`model(torch.cat([a, b]))`); or use a copy of the buffer
in forward (`self.scale.clone()`); or switch the copying off.

Seen with torch 2.13 CPU; the error message is that of older releases.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.model_exam import ModelExam

from ._words import listed

CARD = Card("DDP505", Severity.ERROR)


@probe
def in_two_forwards(model: ModelExam) -> Iterator[Finding]:
    """Name the buffers, and the place of the second call if the factory's file has one."""
    steps = model.steps
    steps.under_ddp()
    hurt = {rank: parity.overwritten for rank, parity in enumerate(steps.parities) if parity.overwritten}
    if not hurt:
        return
    names = sorted({name for overwritten in hurt.values() for name in overwritten})
    calls = model.source.twice
    yield Finding(
        f"{'the' if calls else 'a'} second forward before backward overwrites what the first one saved: "
        + listed(names),
        tuple(
            Evidence(f"saved values of {listed(overwritten)} changed", "unchanged, as without DDP", f"rank {rank}")
            for rank, overwritten in hurt.items()
        ),
        Fix(
            "call the model once for both inputs, or let forward use a copy of the buffer",
            diff="-a, b = model(first), model(second)\n+a, b = model(torch.cat([first, second])).chunk(2)",
        ),
        place=Place(file=model.source.file, line=calls[0]) if calls else Place(),
        severity=Severity.ERROR if calls else Severity.NOTE,
    )
