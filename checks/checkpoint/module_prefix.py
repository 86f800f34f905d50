"""The keys of the checkpoint begin with module., the name under which DP and DDP hold the model.

## What happens

DataParallel and DistributedDataParallel keep the model as their child `module`, so the `state_dict()` of the wrapper
has `module.` before every key. Loaded into the bare model it raises 'Missing key(s) in state_dict: "conv1.weight" ...
Unexpected key(s) in state_dict: "module.conv1.weight"'; with `strict=False` it raises nothing and loads nothing. The
reverse, bare keys into a wrapped model, fails the same way.

## How to be sure

`ddpdoctor inspect last.pt` names the prefix. A layer of your own can be called `module`, too. With
`ddpdoctor check --checkpoint last.pt --model train.py:build_model` the model's own keys decide; without a model,
ddpdoctor prints that it assumes there is none.

## How to mend it

Save the bare model, `model.module.state_dict()`. To mend a file that exists, without loading it:

    ddpdoctor repair last.pt -o last.bare.pt
    ddpdoctor repair last.pt --in-place          # ddpdoctor repair last.pt --undo takes it back
    ddpdoctor repair bare.pt --to ddp -o ddp.pt   # the other way

In a script, `ddpdoctor.load_state_dict(model, "last.pt")` loads either kind into either kind of model. A dict
comprehension that renames loses `_metadata`, and with it the versions of the layers. torch's own
`consume_prefix_in_state_dict_if_present` renames `_metadata`, too, but overwrites silently when both names exist.

## Versions and sources

Holds for all versions of torch; seen with torch 2.13 CPU. Source: PyTorch documentation, "Saving and Loading Models",
and the docstring of `consume_prefix_in_state_dict_if_present`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity

from ._look import few
from ._reason import OTHER_NETWORK, Reason, on_refusal
from ._refusal import refusal
from ._wrappers import Wrapper, facets

AILMENT = Ailment("DDP801", Severity.ERROR)
ALONE, BESIDE_THE_MODEL, IN_LOGS = facets(
    Wrapper(
        ("module",),
        "DataParallel or DistributedDataParallel",
        "torch.save(model.state_dict(), path)",
        "torch.save(model.module.state_dict(), path)",
        Reason.MODULE,
        ", assuming that no layer of the model itself is called module",
    )
)


@on_refusal(Reason.MODULE_ON_ONE_SIDE)
def cut_off_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave it open where the log shows one side only, and all of it begins with module."""
    refused = refusal(record, match, log)
    one_side = refused.missing or refused.unexpected
    expected = "the same keys without module. on the other side"
    yield Finding(
        f"{len(one_side)} keys that begin with module. are {'missing' if refused.missing else 'unexpected'}",
        (Evidence(few(one_side), expected, "load_state_dict"), *refused.evidence),
        Fix(
            "look at the file's keys; where module. is all that differs, write them anew",
            command="ddpdoctor repair last.pt --model train.py:build_model -o new.pt",
        ),
        record.place,
        ambiguity=Ambiguity(
            ("one side was saved or built in DataParallel or DDP, the other was not", OTHER_NETWORK),
            f"ddpdoctor inspect {refused.path} --keys",
        ),
    )
