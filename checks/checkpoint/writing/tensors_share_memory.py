"""safetensors is to write tensors that share memory, and refuses.

## What happens

A safetensors file keeps each tensor for itself. Two names of one tensor would be written twice and come back as two, so
`save_file` refuses: "Some tensors share memory, this will lead to duplicate memory on disk". Two names are usually tied
weights, as `lm_head.weight` and `embed_tokens.weight`. Many names at once are views of one buffer: the flat parameters
of FSDP, DeepSpeed's partitions, or a model that was copied in one piece.

The training itself was right; what is lost is the checkpoint, and with several ranks the others wait for the one that
failed.

## How to be sure

The message lists the names that share memory, group by group: pairs are tied, long lists are views of one buffer.

## How to mend it

Tied weights: `safetensors.torch.save_model(model, path)`, which writes one of them and ties them again in `load_model`;
a transformers model by its own `save_pretrained`. Where the model is wrapped or was replaced (PEFT, a value head), save
the model inside. Views: gather first (`accelerator.get_state_dict(model)`, DeepSpeed's `save_16bit_model`, FSDP's full
state dict), or copy each tensor.

## Versions and sources

Holds for safetensors 0.3 to 0.8 with torch 2.2 to 2.13. Sources: safetensors/torch.py, `_flatten`; safetensors
documentation, "Torch shared tensors"; safetensors/safetensors#304.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP818", Severity.ERROR)
PAIR = 2
TIED = Fix(
    "write tied weights once",
    diff='-safetensors.torch.save_file(model.state_dict(), "model.safetensors")\n'
    '+safetensors.torch.save_model(model, "model.safetensors")   # load_model ties them again',
)
COPIED = Fix(
    "gather what is shared out, on all ranks, and write tensors of their own",
    diff="-state = model.state_dict()\n+state = accelerator.get_state_dict(model)   # gathers under FSDP and ZeRO 3\n"
    "+state = {name: tensor.clone().contiguous() for name, tensor in state.items()}",
)


@log_pattern(
    r"Some tensors share memory, this will lead to duplicate memory on disk and potential differences when "
    r"loading them again: \[(?P<groups>\{[^\n]{0,4000})",
    plain=True,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell two names of one tensor from many views of one buffer."""
    groups = [re.findall(r"'([^']+)'", group) for group in re.findall(r"\{[^}\n]*\}?", match["groups"])]
    largest = max(groups, key=len)
    proof = (record.proof(match, "tensors of their own"),)
    if len(largest) <= PAIR:
        yield Finding(
            f"{' and '.join(largest)} are one tensor (tied weights), which safetensors does not write twice",
            proof,
            TIED,
            record.place,
        )
        return
    yield Finding(
        f"{len(largest)} tensors share one piece of memory ({largest[0]}, {largest[1]}, ...), and safetensors does not "
        "write them so",
        proof,
        COPIED,
        record.place,
        ambiguity=Ambiguity(
            (
                "they are views of one flat buffer: of FSDP, of DeepSpeed, or of a model that was moved in one piece",
                "they are many names of one tensor: tied weights, or one module registered several times",
            ),
            "print({name: (tensor.data_ptr(), tensor.storage_offset()) for name, tensor in state.items()})"
            "   # one address: one tensor",
        ),
    )
