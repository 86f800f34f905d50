"""A mask, or a table of positions, that is the same in each step is made anew in each.

## What happens

`forward` builds the causal mask (`torch.triu(torch.ones(n, n), 1)`), the sines of the positions, an index of pairs, out
of nothing but sizes and numbers. It comes out the same in each step, and in each layer that builds its own. For a
sequence of 2,048 a mask has four million numbers, each of which is written several times over; a table that Python
fills number by number takes longer than the model.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` looks every few milliseconds where the thread that trains is. ddpdoctor finds
statements of a function, or of the loop that makes the steps, that take a tenth of the time or more together, and 2 ms
of a step, in every tenth step or more often, and that read only numbers, shapes, and what they have made of these: no
value of the batch, no parameter, nothing drawn by chance, and nothing that a step changes. The source says so. What is
merely allocated (`torch.zeros`), and a function that is cached, is none. Where the rank waits for a core, that wait is
left out.

## How to mend it

Make it once, in `__init__`, for the longest input, and keep it as a buffer that is not saved: `self.register_buffer(
"mask", mask, persistent=False)`; in `forward` take a part of it, `self.mask[:n, :n]`. Where sizes are not known before,
put it into a function of the sizes under `functools.lru_cache`. A causal mask alone needs no tensor:
`scaled_dot_product_attention(q, k, v, is_causal=True)`. DDP broadcasts large buffers before each forward
(buffers-broadcast-each-forward): leave them out with `broadcast_buffers=False`.

## Versions and sources

Holds for every version of torch. Source: PyTorch documentation, `torch.nn.Module.register_buffer`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Severity, StepsTimed, Training, watch

from .._lines import seen
from ._own_code import ANEW
from ._rows import SHOWN, most, rows_of, taken

AILMENT = Ailment("DDP1980", Severity.NOTE)


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for statements that make the same in each step, on any rank."""
    for (_, file, number), rows in rows_of(event, training, {ANEW}).items():
        part, rank, _, line = most(rows)
        made = taken(training, part, rank)
        if not made.is_much():
            continue
        yield Finding(
            f"{line.inner_function}() at {file}:{number} makes the same in each step, of sizes and numbers alone: "
            f"{made.text()}",
            tuple(
                seen(each, told, row, "" if at else "made once") for at, (_, each, told, row) in enumerate(rows[:SHOWN])
            ),
            Fix(
                "make it once, for the longest input, keep it (self.register_buffer(..., persistent=False)) and take "
                "a part of it in each step, or put it into a function of the sizes under functools.lru_cache: "
                f"{made.promise}"
            ),
            made.place(file, number, len(rows), event),
        )
