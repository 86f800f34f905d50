"""The keys of the checkpoint carry the names under which FSDP holds the modules that it wraps.

## What happens

FullyShardedDataParallel (FSDP1) keeps a wrapped module as its child `_fsdp_wrapped_module` (`_fpw_module` before
torch 1.13). Its `state_dict()` takes that name out of the keys, but `dict(model.named_parameters())` of a model with
wrapped layers keeps it: `layers.0._fsdp_wrapped_module.weight`. When such a file is loaded into a plain model, the
plain names are missing and the prefixed ones unexpected.

## How to be sure

`ddpdoctor inspect last.pt` names the prefix. No layer of a user's model has this name, so the answer is certain. In a
log, the keys of the error hold `_fsdp_wrapped_module.`, `_fpw_module.` or `_flat_param`.

## How to mend it

Save the full state dict, whose keys are those of the plain model:
`torch.distributed.checkpoint.state_dict.get_model_state_dict` with
`StateDictOptions(full_state_dict=True, cpu_offload=True)`, called on all ranks, saved by rank 0. To mend a file that
exists, without loading it:

    ddpdoctor repair last.pt -o last.bare.pt
    ddpdoctor repair last.pt --in-place          # ddpdoctor repair last.pt --undo takes it back

## Versions and sources

Holds for FSDP1 of all versions of torch; `get_model_state_dict` exists since 2.2. FSDP2 (`fully_shard`) changes no
key. Seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.distributed.checkpoint".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity

from ..._look import few
from ..._reason import Reason, on_refusal
from ..._refusal import refusal
from ..._sharded import FSDP_KEY
from ._wrappers import Wrapper, facets

AILMENT = Ailment("DDP803", Severity.ERROR)
ALONE, BESIDE_THE_MODEL, IN_LOGS = facets(
    Wrapper(
        ("_fsdp_wrapped_module", "_fpw_module"),
        "FullyShardedDataParallel",
        "torch.save(dict(model.named_parameters()), path)",
        "full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n"
        "+ if torch.distributed.get_rank() == 0:\n+     torch.save(full, path)",
        Reason.SHARDED,
    )
)


@on_refusal(Reason.FLAT)
def by_what_fsdp_adds(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise flat parameters and FSDP's own classes, where no renaming makes the keys equal."""
    refused = refusal(record, match, log)
    names = [key for key in (*refused.missing, *refused.unexpected) if FSDP_KEY.search(key)]
    yield Finding(
        "the checkpoint and the model hold their parameters in different ways of FSDP: one of them has "
        + (FSDP_KEY.search(names[0]) or names)[0].strip("."),
        (Evidence(few(names), "the same state_dict_type at saving and at loading", refused.model), *refused.evidence),
        Fix(
            "save the full state dict, and load it before FSDP wraps the model or through set_model_state_dict",
            diff="-torch.save(model.state_dict(), path)\n"
            "+options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
            "+state = get_model_state_dict(model, options=options)  # on all ranks\n"
            "+if rank == 0: torch.save(state, path)",
        ),
        record.place,
    )
