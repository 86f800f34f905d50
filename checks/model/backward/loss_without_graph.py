"""The loss has no graph: nothing that it is made of asks for gradients.

## What happens

Backward ends with "element 0 of tensors does not require grad and does not have a grad_fn". The forward ran under
`torch.no_grad()` or `torch.inference_mode()` (often a validation loss, or a decorator on the training function), or the
loss was made anew from numbers: `torch.tensor(loss)`, `.item()`, `.detach()`, `.data`, `argmax`, a comparison; or all
parameters are frozen, which DDP itself refuses when it wraps. Or all of it came out of a gather: `all_gather` of
`torch.distributed`, of Lightning and of Fabric, and Accelerate's `gather`, give tensors without gradients, this rank's
own among them. Or activation checkpointing of the reentrant kind got inputs that ask for no gradients, as those of
frozen embeddings before LoRA: it then cuts the graph, and warns "None of the inputs have requires_grad=True".
`model.eval()` has no part in it: an eval forward has a graph. DDP has none either: one process alone fails at the same
line.

## How to be sure

`print(model(x).requires_grad)` before the loss is made: False tells of the mode or of frozen parameters, True of what
makes the loss. Where the script can be read, a `with` or a decorator around the failed line's forward is named,
and a gather that all of the loss comes out of.

## How to mend it

Run the forward whose loss is to be minimised outside of no_grad, and make the loss with torch's functions from its
output. Checkpoint without re-entering: `use_reentrant=False`. Gather with gradients: `self.all_gather(z,
sync_grads=True)` in Lightning, `fabric.all_gather(z, sync_grads=True)` in Fabric, elsewhere a function whose backward
adds up over the ranks (the fix has it).

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/csrc/autograd, `validate_outputs` and python_engine.cpp; "Locally disabling
gradient computation" in torch's documentation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Place, Record, Severity, Site, log_pattern

from .._words import GATHER
from ._cut_by_gather import Gather, gather_of_loss

AILMENT = Ailment("DDP1566", Severity.ERROR)
REENTRANT = r"None of the inputs have requires_grad=True\. Gradients will be None"
CAUSES = (
    "the forward ran under torch.no_grad(), torch.inference_mode(), or a function decorated with them",
    "the loss was cut off: .item(), .detach(), .data, torch.tensor(...), argmax, a comparison",
    "all parameters that the output depends on are frozen (requires_grad=False)",
)
TELL = "print(torch.is_grad_enabled(), out.requires_grad, loss.requires_grad)   # before backward"


@log_pattern(
    r"RuntimeError: element (?P<index>\d+) of tensors does not require grad and does not have a grad_fn",
    context=(REENTRANT,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name the gather that all of the loss came out of, or say what can have cut it off from the model."""
    for frame in record.frames if record.users else ():
        if frame.is_users and (gather := gather_of_loss(Site(frame.file, frame.line, frame.function))) is not None:
            yield _gathered(record, match, gather)
            return
    if warned := log.first(REENTRANT):
        yield _checkpointed(record, match, warned[0].proof(warned[1], "an input that asks for gradients"))
        return
    yield Finding(
        "the loss has no graph: its forward ran without gradients, or it was made anew from numbers",
        (record.proof(match, "a loss whose requires_grad is True"),),
        Fix(
            "run the forward of the training outside of no_grad and inference_mode, and keep its output a tensor",
            diff="-with torch.no_grad():\n-    out = model(x)\n+out = model(x)\n"
            "-loss = torch.tensor(criterion(out, y).item())\n+loss = criterion(out, y)",
        ),
        record.place,
        ambiguity=Ambiguity(CAUSES, TELL),
    )


def _checkpointed(record: Record, match: re.Match[str], warned: Evidence) -> Finding:
    return Finding(
        "the loss has no graph, and reentrant activation checkpointing has warned that it cuts it",
        (record.proof(match, "a loss whose requires_grad is True"), warned),
        Fix(
            "checkpoint without re-entering, which follows the parameters; or let the embeddings ask for gradients",
            diff="-model.gradient_checkpointing_enable()\n"
            '+model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})\n'
            "or\n+model.enable_input_require_grads()   # transformers, before the adapter is added",
        ),
        record.place,
        ambiguity=Ambiguity(
            ("the checkpointed part holds all trained parameters, and its input asks for no gradients", *CAUSES), TELL
        ),
    )


def _gathered(record: Record, match: re.Match[str], gather: Gather) -> Finding:
    return Finding(
        f"the loss has no graph: all of it is made of what {gather.shown} gives, which carries no gradient",
        (
            record.proof(match, "a loss whose requires_grad is True"),
            Evidence(" ".join(ast.unparse(gather.call).split()), "a gather with gradients",
                     f"{gather.file}:{gather.call.lineno}"),
        ),
        _with_gradients(gather),
        Place(file=gather.file, line=gather.call.lineno, rank=record.rank, host=record.node),
    )  # fmt: skip


def _with_gradients(gather: Gather) -> Fix:
    call = " ".join(ast.unparse(gather.call).split())
    if gather.takes_sync:
        given = ", ".join(ast.unparse(each) for each in (*gather.call.args, *gather.call.keywords)
                          if getattr(each, "arg", "") != "sync_grads")  # fmt: skip
        return Fix(
            "gather with gradients, each time that the loss is made of it",
            diff=f"-{call}\n+{gather.shown}({given}, sync_grads=True)",
        )
    fills = gather.shown.rpartition(".")[2] not in {"gather", "gather_for_metrics"}
    given = ast.unparse(gather.call.args[1 if fills else 0])
    put = f"{ast.unparse(gather.call.args[0])} = " if fills else ""
    is_list = gather.shown.endswith("all_gather")
    return Fix(
        "gather with gradients, each time that the loss is made of it",
        diff=f"{GATHER}-{call}\n+{put}Gather.apply({given}){'.chunk(dist.get_world_size())' if is_list else ''}",
    )
