"""strict=False passed over FSDP's flat parameters: nothing was loaded.

## What happens

Inside FSDP1 the parameters of a unit are one flat tensor, `_flat_param`. A state dict with that key, loaded with
`strict=False` into a model whose own keys are the original ones (`use_orig_params=True`, or a plain model), leaves
the weights as they are: `_IncompatibleKeys(missing_keys=[], unexpected_keys=['_fsdp_wrapped_module._flat_param'])`.
No error is raised, and the training goes on from random or old weights.

## How to be sure

What `load_state_dict` returns lists `_flat_param` as unexpected; fvcore and detectron2 print it as a key that is not
used by the model. A sum over the parameters is the same before and after the load.

## How to mend it

Load through `set_model_state_dict` (torch.distributed.checkpoint.state_dict) with a full state dict, on all ranks,
not between forward and backward. Wherever you use `strict=False`, print what it returns.

## Versions and sources

Holds for FSDP1 of torch 2.0 to 2.13. Source: torch/distributed/fsdp/_flat_param.py, and `Module.load_state_dict`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity, is_flat, log_pattern

from .._look import few
from .._reason import Reason, on_refusal
from .._refusal import refusal

AILMENT = Ailment("DDP824", Severity.ERROR)


FLAT = r"^\s*[\w.]{0,400}_fsdp_wrapped_module\.[\w.]{0,400}flat_param"


@log_pattern(r"checkpoint state_dict contains keys that are not used by the model", context=(FLAT,))
def by_fvcore(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise the list that fvcore, and with it detectron2, prints of keys that it passed over."""
    if found := log.first(FLAT):
        yield _finding(record, (record.proof(match, "no key left over"), found[0].proof(found[1])))


@on_refusal(Reason.FLAT_IGNORED)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise flat parameters among the keys that were passed over."""
    refused = refusal(record, match, log)
    flat = few([key for key in refused.unexpected if is_flat(key)])
    yield _finding(record, (*refused.evidence, Evidence(flat, "no flat parameter among the keys", "unexpected_keys")))


def _finding(record: Record, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(
        "FSDP's flat parameters in the checkpoint were passed over: the weights are as they were before",
        evidence,
        Fix(
            "load a full state dict through torch.distributed.checkpoint, on all ranks",
            diff="-model.load_state_dict(state, strict=False)\n"
            "+options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)\n"
            "+set_model_state_dict(model, state, options=options)",
        ),
        record.place,
    )
