"""The optimizers of the ranks hold the parameters of one model in another order, or not the same ones.

## What happens

An optimizer knows its parameters by their place. Where a script puts them into groups in the order of a set of names,
that order is another in each process, since Python hashes strings with a seed of the process; where a condition on the
rank ties two weights or leaves one out, a rank trains fewer than the others. The steps themselves still fit. But a
state that rank 0 has saved is given to other parameters on the ranks that load it, momentum of one weight to another of
the same shape, without an error.

## How to be sure

ddpdoctor compares the names of what the optimizers hold, on all ranks, of parameters that DDP averages.

Silent for optimizers that share their parameters out to the ranks, and where there are groups of some ranks.

## How to mend it

Keep the order of `named_parameters()`, or sort:

    decay = [p for name, p in model.named_parameters() if name in with_decay]

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: Python documentation, `PYTHONHASHSEED`; torch's
torch/optim/optimizer.py, `state_dict`, which numbers parameters by their order.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    ParametersHeld,
    Severity,
    StepFingerprinted,
    Training,
    place,
    watch,
)

from ..._ledgers.ledger import of_all_ranks
from ..._ledgers.sheets import NEVER
from .._alike import SHARDING, in_another_order, map_built
from .._words import counted, listed

AILMENT = Ailment("DDP1507", Severity.WARNING)
SECOND = 2  # step: once whatever is exchanged was seen
FIX = Fix(
    "give the optimizer its parameters in the same order on every rank",
    diff="-{'params': [named[name] for name in set(decay)]}\n+{'params': [named[name] for name in sorted(decay)]}",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare what the optimizers hold, once, at their second step."""
    ranks = of_all_ranks(event, training)
    held = {each.rank: each for each in map_built(ranks, training) if each.rank is not None}
    if event.number != SECOND or len(held) < len(ranks) or len(held) < SECOND or not _comparable(held, ranks, training):
        return
    if in_another_order(training):
        return  # so are the model's own, which is another check's
    orders = {rank: each.names for rank, each in held.items()}
    sets = {rank: frozenset(each) for rank, each in orders.items()}
    most = max(sets.values(), key=len)
    if len(set(orders.values())) == 1 or not all(each <= most for each in sets.values()):
        return
    missing = sorted(most - frozenset.intersection(*sets.values()))
    at = next((at for at, names in enumerate(zip(*orders.values(), strict=False)) if len(set(names)) > 1), 0)
    if missing:
        message = f"{counted(len(missing), 'parameter')} held by the optimizer on some ranks only: {listed(missing, 4)}"
    else:
        message = "the optimizers of the ranks hold the same parameters in another order"
    yield Finding(
        message,
        tuple(
            Evidence(
                f"{len(names)} parameters" + (f", number {at} is {names[at]}" if at < len(names) else ""),
                "the same on all ranks",
                f"rank {rank}, {held[rank].kind}",
            )
            for rank, names in sorted(orders.items())[:8]
        ),
        FIX,
        place(next(iter(held.values())).site),
    )


def _comparable(held: dict[int, ParametersHeld], ranks: dict[int, StepFingerprinted], training: Training) -> bool:
    """Whether DDP averages all that is held, and nobody shares it out to the ranks."""
    kinds = {each.kind for each in training.of(ParametersHeld)}
    apart = any(each.subgroups for each in ranks.values()) or kinds & SHARDING
    sent = [exchange for each in ranks.values() for exchange in each.exchanges]
    exchanged = any(each.what == "parameter" or each.when == "in the step" for each in sent)
    return not apart and not exchanged and all(NEVER not in each.managed and each.managed for each in held.values())
