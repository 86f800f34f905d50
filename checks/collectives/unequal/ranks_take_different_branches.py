"""A rank's batch takes another branch of the model, and its gradients come in other buckets.

## What happens

In a model with parts that only some batches use (a vision tower and a text-only batch, experts, auxiliary heads), a
rank whose batch skips a part reduces other buckets than the rest. The collectives have the same number and operation,
and very different sizes: ALLREDUCE of 195812480 elements on one rank, 51123456 on another. Without
TORCH_DISTRIBUTED_DEBUG=DETAIL it is a hang in backward. DeepSpeed's ZeRO-3 compares the order of modules itself:
"disagreement between rank0 and rank7", "Detected a disagreement on list length between rank0 and rank7". With FSDP and
ZeRO-3 each module's forward gathers its weights from all ranks: a rank that leaves one out is in another collective
than the rest.

## How to be sure

The difference of the sizes is the number of parameters of the part that was skipped. Print
`sum(p.numel() for p in part.parameters())` for the parts of the model, and compare. In a running training
(`ddpdoctor run`) one rank gathers weights at a line of a forward, under an `if`, that another rank has not come to.

## How to mend it

Let every batch use every part, with a dummy input or with zero times its parameters added to the loss; or build
batches in which each rank has every kind of sample. DeepSpeed gathers a module with all of its parts at once where it
is told to, before `deepspeed.initialize`: `deepspeed.utils.set_z3_leaf_modules(model, [Block])`.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torch's ProcessGroupWrapper.cpp; torch's DistributedDataParallel documentation,
"find_unused_parameters"; DeepSpeed 0.9 to 0.19, deepspeed/runtime/zero/utils.py, `assert_ints_same_as_other_ranks`;
deepspeedai/DeepSpeed#5799, PKU-YuanGroup/Chat-UniVi#6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    PeerLost,
    Record,
    Severity,
    Stalled,
    Table,
    Training,
    log_pattern,
    place,
)

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._losses import Loss, on_loss
from ..hangs._told import noticed, seen, short, table
from ..hangs.calls._branches import Branch, in_branch
from ._mismatch import Mismatch, both_sides, on_mismatch

AILMENT = Ailment("DDP713", Severity.ERROR)
OTHERWISE = (
    "a batch of one rank takes another branch of the model (a sample without an image, experts, an early exit)",
    "the ranks built different models: a part under a condition of the rank, another configuration or version",
    "the ranks do different numbers of forwards in a step: one accumulates, evaluates or generates longer",
)
LOOK = (
    "grep -rnE 'if .*(is None|is not None|rank|training)' --include='*model*.py' .; "
    "ddpdoctor run -- deepspeed train.py   # names the branch"
)


@on_mismatch(Mismatch.BRANCH)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Two flat buckets of gradients, of different sizes."""
    yield Finding(
        "the ranks reduce gradients of different parts of the model: " + "; ".join(map(str, both_sides(record, log))),
        (record.proof(match, "the same buckets on all ranks"),),
        Fix(
            "let every batch touch every part of the model",
            diff="+loss = loss + 0.0 * sum(p.sum() for p in model.module.vision.parameters())\n loss.backward()",
        ),
        record.place,
    )


@log_pattern(
    r"RuntimeError: (?:Detected a )?disagreement (?:on list (?:length|contents) )?between rank0 and rank(?P<rank>\d+):"
)
def of_deepspeed(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read ZeRO-3's comparison of the modules or parameters that were used; what made them differ it shows seldom."""
    recorded = "record_parameters" in record.text or "record_module" in record.text
    yield Finding(
        f"rank {match['rank']} used other modules or parameters of the model than rank 0, or in another order: ZeRO-3 "
        "gathers and reduces them in one order on all ranks",
        (record.proof(match, "the same modules in the same order on all ranks"),),
        Fix(
            "let every batch go through every part of the model",
            diff="+if images is None:\n+    images = torch.zeros(1, 3, size, size, device=device)\n"
            " features = model.vision(images)",
        ),
        record.place,
        ambiguity=None if recorded else Ambiguity(OTHERWISE, LOOK),
    )


@on_hang(Hang.BRANCH)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Name the branch of a sharded model, and the rank that is not in it."""
    if found := in_branch(event.ranks):
        yield _finding(found, training, seen(event), table(event))


@on_loss(Loss.BRANCH)
def by_those_who_lost_it(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Name it where one of the ranks is gone: gloo ends a process that gets more bytes than it has room for."""
    found = in_branch(event.progress)
    assert found is not None  # noqa: S101 - else it would be another loss
    yield _finding(found, training, noticed(event))


def _finding(found: Branch, training: Training, proof: tuple[Evidence, ...], positions: Table | None = None) -> Finding:
    by_deepspeed = training.framework is not None and training.framework.name == "DeepSpeed"
    owner = found.site.function.rpartition(".")[0].rpartition(".")[2] or "Block"
    leaf = f"+deepspeed.utils.set_z3_leaf_modules(model, [{owner}])   # before initialize: gathered as one\nor\n"
    return Finding(
        f"rank {found.rank} gathers the weights of a module at {short(found.site)}, under `if {found.test}`: rank "
        f"{found.other} leaves it out, and calls {found.theirs.operation} at {short(found.theirs.site)} in its place",
        (Evidence(f"if {found.test}", "every module on all ranks, in each step", str(found.site)), *proof),
        Fix(
            "let every batch go through every part of the model",
            diff=f"{leaf if by_deepspeed else ''}-if {found.test}:\n-    h = h + self.part(h)\n"
            f"+part = self.part(h)   # on all ranks, each time\n+h = h + (part if {found.test} else 0.0 * part)",
        ),
        place(found.site, rank=found.rank),
        table=positions,
    )
