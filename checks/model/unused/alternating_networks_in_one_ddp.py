"""Networks that are trained in turn share one DDP, which waits for the gradients of all.

## What happens

Under manual optimisation a GAN's step runs backward for the generator and then for the discriminator. One DDP around
both expects a gradient of every parameter in each backward; the backward of one network leaves the other's parameters
without, and the next forward or `manual_backward` raises "Expected to have finished reduction in the prior iteration
before starting a new one. This error indicates that your module has parameters that were not used in producing loss"
(Lightning says instead that the LightningModule "has parameters that were not used in producing the loss").
No layer is superfluous here; the parameters are used, in the other half of the step.

## How to be sure

The traceback passes through `manual_backward` or `toggle_optimizer`, so the script drives more than
one backward in a step by itself.

## How to mend it

Tell DDP to look for what a step leaves out (`strategy="ddp_find_unused_parameters_true"` with
Lightning, `find_unused_parameters=True` else), or wrap each network in a DDP of its own.

## Versions and sources

Holds for torch 2.2 to 2.13 and Lightning 1.5 and later; seen with torch 2.13 CPU and Lightning 2.6. Source:
Lightning's DDPStrategy, which prepares DDP's backward in `pre_backward` under manual optimisation, and
torch/csrc/distributed/c10d/reducer.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

from .._logs import ALTERNATING, BY_HAND, NO_GRADIENT, beside, find_unused

AILMENT = Ailment("DDP524", Severity.ERROR)


@log_pattern(NO_GRADIENT, context=(ALTERNATING,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise the message by the manual optimisation in its traceback."""
    if turns := beside(record, log, ALTERNATING):
        line = find_unused(record.text)
        yield Finding(
            "one DDP holds networks whose backwards alternate: one of them leaves the other without gradients",
            (record.proof(match, "a gradient of every parameter in each backward"), *turns),
            Fix(
                "let DDP look for the parameters that a backward leaves out, or wrap each network by itself",
                diff=f"+{line}"
                if line != BY_HAND
                else "-model = DDP(gan)\n+g, d = DDP(gan.generator), DDP(gan.critic)",
            ),
            record.place,
        )
