"""A plain tensor meets sharded parameters (DTensor) in one operation.

## What happens

fully_shard (FSDP2) and tensor parallelism turn parameters into DTensors: each rank holds a shard, and the tensor knows
the whole. An operation on a DTensor and a plain tensor has no meaning that torch could choose for the user, so it
raises "aten.mul.Tensor: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling
distributed operators!" (up to torch 2.1 "got mixed distributed and non-distributed tensors"). Only tensors of one
element without dimensions are let through.

## How to be sure

The operator and the line tell which tensor is plain. An `_foreach_` operation within an optimizer or a clipping: some
parameters are sharded and others are not, in one group. `embedding`, `mm` or `linear`: a weight is used outside of the
forward that gathers it (a loss that takes `lm_head.weight`, generation on a submodule), or was made after sharding (a
LoRA adapter, a new buffer). `copy_`: weights are copied between a sharded and a whole model.

## How to mend it

Shard every parameter that meets sharded ones, adapters included, before the optimizer is made; call the module that
fully_shard was applied to, not a part of it. A method beside forward that is to gather them as well is registered:
`register_fsdp_forward_method(model, "encode")`. Where the plain tensor is right, make it a DTensor
(`distribute_tensor(t, mesh, [Replicate()])`) or the sharded one whole (`p.full_tensor()`, on all ranks).

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed.tensor's _dispatch.py (up to 2.4 torch.distributed._tensor).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, last_name, log_pattern, tree_of

from ._methods import calls_layer, method_beside_forward

AILMENT = Ailment("DDP545", Severity.ERROR)
LONGEST = 100  # characters of an operator's name
APART = "some parameters of one optimizer or clipping are sharded, and others are not"
OUTSIDE = (
    "the forward goes past the sharded module, so that its weight was not gathered: a submodule or .weight is used"
)
LOADED = Fix(
    "let torch split the whole weights, instead of load_state_dict",
    diff="-model.load_state_dict(state)\n"
    "+from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict\n"
    "+set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))",
)
THROUGH = Fix(
    "call the module that was sharded, whose forward gathers its weights, or shard the part that is called as well",
    diff="-output = model.head(model.encoder(inputs))\n+output = model(inputs)",
)
WEIGHT = re.compile(r"line \d+, in forward\n[^\n]*?\b(?P<module>self(?:\.\w+)+)\.weight\b")
SHARD = frozenset({"fully_shard", "parallelize_module", "distribute_module"})
OF_LAYERS = frozenset({"mm", "addmm", "bmm", "matmul", "linear", "embedding"})
AFTER = "a weight, an adapter or a buffer was made after the sharding, so it is plain"
RECOMPUTED = (
    "activation checkpointing recomputes a forward after the backward of another has resharded the weights: several "
    "forwards before one backward (DPO), and a sharded module within a sharded one; newer versions of torch mend it"
)
KEPT = Fix(
    "leave the weights of the outer module gathered between forward and backward, or do not shard inside of it",
    diff="-fully_shard(block)\n+fully_shard(block, reshard_after_forward=False)",
)
COPYING = "While copying the parameter named"
COPIED = "weights are copied between a sharded model and a whole one"


@log_pattern(r":? got mixed (?:torch\.Tensor and DTensor|distributed and non-distributed tensors)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Let the operator say what is likely."""
    op = re.split(r"[^\w.]", record.text[: match.start()][-LONGEST:])[-1]
    if COPYING in record.text and _shards(record.place.file):
        yield Finding(
            "load_state_dict is given whole tensors, and the model's are sharded (DTensor)",
            (record.proof(match, "only DTensors, or only plain tensors"),),
            LOADED,
            record.place,
        )
        return
    causes: tuple[str, ...]
    read = [*WEIGHT.finditer(record.text)]
    if read and op.rpartition("aten.")[2].partition(".")[0] in OF_LAYERS:
        yield from _of_a_weight(record, match, op, read[-1]["module"])
        return
    if "_foreach_" in op:
        causes = (APART, AFTER)
    elif ".copy_" in op:
        causes = (COPIED, AFTER)
    elif method := method_beside_forward(record.frames):
        causes = (f"{method}() is called beside forward, which alone gathers the weights", AFTER, APART)
    else:
        causes = (OUTSIDE, AFTER, APART)
    if "recompute_fn" in record.text and op.rpartition("aten.")[2].partition(".")[0] in OF_LAYERS:
        causes = (RECOMPUTED, *causes)
    beside = method_beside_forward(record.frames) if "beside forward" in causes[0] else ""
    yield Finding(
        f"{op} was given a plain tensor together with a DTensor",
        (record.proof(match, "only DTensors, or only plain tensors"),),
        KEPT
        if causes[0] is RECOMPUTED
        else _registered(beside)
        if beside
        else LOADED
        if COPYING in record.text
        else THROUGH
        if causes[0] is OUTSIDE and calls_layer(record.frames)
        else Fix(
            "shard whatever meets sharded parameters, before the optimizer is made; or make the plain tensor a DTensor",
            diff="+from torch.distributed.tensor import Replicate, distribute_tensor\n"
            "+plain = distribute_tensor(plain, sharded.device_mesh, [Replicate()])",
        ),
        record.place,
        ambiguity=Ambiguity(
            causes,
            'python -c "import train; print({n: type(p.data).__name__ for n, p in train.model.named_parameters()})"'
            "   # after sharding: who is no DTensor",
        ),
    )


def _shards(file: str | None) -> bool:
    """Whether the file of the line that loads shards a model, so that it is the checkpoint that is whole."""
    return file is not None and any(last_name(each.func) in SHARD for each in tree_of(file).of(ast.Call))


def _of_a_weight(record: Record, match: re.Match[str], op: str, module: str) -> Iterator[Finding]:
    """A forward reads the weight of a module that is sharded by itself: only that one's own forward gathers it."""
    name = module.removeprefix("self.")
    yield Finding(
        f"{op} was given {module}.weight, a DTensor, together with a plain tensor: that weight is read where no "
        "forward has gathered it",
        (record.proof(match, "only DTensors, or only plain tensors"),),
        Fix(
            "do not shard that module by itself: its weights then belong to the whole model, whose forward gathers "
            "them (tied weights, a head that takes the embedding's)",
            diff=f"-fully_shard(model.{name})\n fully_shard(model)",
        ),
        record.place,
    )


def _registered(method: str) -> Fix:
    return Fix(
        "let FSDP gather the weights for this method as it does for forward",
        diff=f"+from torch.distributed.fsdp import register_fsdp_forward_method\n fully_shard(model)\n"
        f'+register_fsdp_forward_method(model, "{method}")',
    )
