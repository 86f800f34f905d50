"""A tensor was saved while its memory was given back: the file has its shape, and no values.

## What happens

FSDP and ZeRO-3 free the whole weights of a module once it has run, and keep each rank's part. `torch.save(model)`,
`torch.save(model.state_dict())` past the wrapper's own ways, or a Lightning checkpoint that was not gathered, then
write tensors whose storage is smaller than their shape. Saving succeeds; loading ends with "Trying to resize storage
that is not resizable", or "setStorage: ... out of bounds for storage of size 0".

## How to be sure

Below the error stands `torch/_utils.py`, in `_rebuild_tensor`: a file is read, no batch is made. The size of the file
is far below what the parameters need.

## How to mend it

The values are not in the file; take an older checkpoint, or the shards beside it. Save by the wrapper's own way, on all
ranks: `torch.distributed.checkpoint.state_dict.get_model_state_dict` with `full_state_dict=True`; Lightning:
`FSDPStrategy(state_dict_type="full")`; DeepSpeed: `engine.save_checkpoint`, then its `zero_to_fp32.py`.

## Versions and sources

Holds for torch 2.2 to 2.13; with 2.13 seen here, of a tensor whose storage was resized to 0. Source: torch/_utils.py,
`_rebuild_tensor`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP831", Severity.ERROR)


@log_pattern(
    r"torch[/\\]_utils\.py\", line \d+, in _rebuild_tensor\n[^\0]{0,300}?RuntimeError: "
    r"(?:Trying to resize storage that is not resizable|setStorage: [^\n]{1,160}?out of bounds for storage of size \d+)"
)
def in_logs(record: Record) -> Iterator[Finding]:
    """A tensor of the file is larger than the storage that the file has for it."""
    yield Finding(
        "a tensor of this file is larger than what the file holds of its values",
        (record.proof(None, "a storage as large as the tensor"),),
        Fix(
            "save the whole state dict by the wrapper's own way, on all ranks",
            diff="-torch.save(model.state_dict(), path)\n"
            "+state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n"
            "+if dist.get_rank() == 0:\n"
            "+    torch.save(state, path)   # Lightning: FSDPStrategy(state_dict_type='full')",
            command="ddpdoctor inspect FILE",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "it was saved while FSDP or ZeRO-3 had given back the whole weights: the values are in the shards",
                "a program of its own wrote the file, or rewrote its records",
            ),
            "ls -l FILE; ddpdoctor inspect FILE   # its size against the bytes of its tensors",
        ),
    )
