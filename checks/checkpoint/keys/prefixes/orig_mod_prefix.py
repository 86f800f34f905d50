"""The keys of the checkpoint carry _orig_mod., the name under which torch.compile holds the model.

## What happens

`torch.compile(model)` returns an OptimizedModule that keeps the model as its child `_orig_mod`, so its `state_dict()`
has `_orig_mod.` before every key. With DDP the prefixes add up in the order of the wrapping: `module._orig_mod.` or
`_orig_mod.module.`. Loaded into the model that is not compiled, the file raises 'Unexpected key(s) in state_dict:
"_orig_mod.conv1.weight"'.

## How to be sure

`ddpdoctor inspect last.pt` names the prefix. No layer of a user's model has this name, so the answer is certain.

## How to mend it

Save the model that was given to torch.compile, or compile in place with `model.compile()`, which changes no key. To
mend a file that exists, without loading it:

    ddpdoctor repair last.pt -o last.bare.pt
    ddpdoctor repair last.pt --in-place          # ddpdoctor repair last.pt --undo takes it back
    ddpdoctor repair bare.pt --to ddp,compile -o new.pt   # as DDP(torch.compile(model)) has them; or --to compile

## Versions and sources

Holds for torch 2.0 and later (`Module.compile()` for 2.2 and later); seen with torch 2.13 CPU. Source: PyTorch
documentation, "torch.compile", and torch/_dynamo/eval_frame.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity

from ..._look import few
from ..._reason import OTHER_NETWORK, Reason, on_refusal
from ..._refusal import refusal
from ._wrappers import Wrapper, facets

AILMENT = Ailment("DDP802", Severity.ERROR)
ALONE, BESIDE_THE_MODEL, IN_LOGS = facets(
    Wrapper(
        ("_orig_mod",),
        "torch.compile",
        "torch.save(model.state_dict(), path)",
        "torch.save(model._orig_mod.state_dict(), path)",
        Reason.COMPILED,
    )
)


@on_refusal(Reason.COMPILED_ON_ONE_SIDE)
def one_side_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave it open where the log shows one side only, and all of it carries the name."""
    refused = refusal(record, match, log)
    keys = refused.missing or refused.unexpected
    yield Finding(
        f"{len(keys)} keys of {'the model' if refused.missing else 'the checkpoint'} carry _orig_mod.",
        (Evidence(few(keys), "the other side has them without _orig_mod.", "load_state_dict"), *refused.evidence),
        Fix(
            "load into the model that is not compiled; write the file anew where its keys carry the name",
            command=f"ddpdoctor repair {refused.path} --model train.py:build_model -o new.pt",
            diff="-model.load_state_dict(state)\n+model._orig_mod.load_state_dict(state)",
        ),
        record.place,
        ambiguity=Ambiguity(
            ("one side was compiled by torch.compile, the other was not", OTHER_NETWORK),
            f"ddpdoctor inspect {refused.path} --keys",
        ),
    )
