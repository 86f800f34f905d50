"""A wrapped model is copied or pickled, and its process group cannot be.

## What happens

`copy.deepcopy(ddp_model)` (for an average of the weights, a best model, a teacher), `torch.save(ddp_model)` and
handing it to a new process all reach the process group inside of it: "cannot pickle
'torch._C._distributed_c10d.ProcessGroup' object". A module that keeps a group or a DeviceMesh as an attribute of its
own does the same without a wrapper.

## How to be sure

The traceback passes through `copy.py` or `serialization.py`; the message names ProcessGroup, Work or Store.

## How to mend it

Copy or save what is wrapped: `copy.deepcopy(model.module)`, `torch.save(model.module.state_dict(), path)`. Make the
copy before wrapping where you can.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. torch's own AveragedModel copies what it is given: give it
model.module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP584", Severity.ERROR)


@log_pattern(r"TypeError: cannot pickle '(?P<type>torch\._C\._distributed_c10d\.\w+)' object")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report whether it was copied or saved, by the frames."""
    is_copied = "copy.py" in record.text or "deepcopy" in record.text
    yield Finding(
        f"a wrapped model is {'copied' if is_copied else 'pickled'}, and holds a {match['type'].rpartition('.')[2]}",
        (record.proof(match, "the module inside of the wrapper"),),
        Fix(
            "take the module out of the wrapper",
            diff="-ema = copy.deepcopy(model)\n+ema = copy.deepcopy(model.module)"
            if is_copied
            else "-torch.save(model, path)\n+torch.save(model.module.state_dict(), path)",
        ),
        record.place,
    )
