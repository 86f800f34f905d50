"""How ranks that make other numbers of steps come to the end together."""

from __future__ import annotations

from ddpdoctor.check import (
    Evidence,
    Fix,
    PeerLost,
    Training,
)

from ..diverged._went_on import UNEVEN


def forwards_begun(event: PeerLost, gone: int, lost: int | None) -> tuple[Evidence, ...]:
    """Return how many forwards of wrapped models both ranks have begun, where the one that ended has fewer."""
    begun = {each.rank: each.forwards for each in event.progress}
    fewer, more = begun.get(gone, 0), begun.get(-1 if lost is None else lost, 0)
    if not 0 < fewer < more:
        return ()
    return (Evidence(f"{fewer} forwards begun", f"{more}, as rank {lost} has", f"rank {gone}"),)


def as_many_steps(event: PeerLost, gone: int, lost: int | None, training: Training) -> Fix:
    """Return how ranks that make other numbers of steps come to the end together."""
    is_uneven = training.framework is None and forwards_begun(event, gone, lost)
    return UNEVEN if is_uneven else same_steps(training)


def same_steps(training: Training) -> Fix:
    """Return how a batch that one rank leaves out is left out by all of them."""
    framework = training.framework
    agreed = framework.agree if framework is not None and framework.agree else AGREED
    return Fix(
        "let all ranks do the same steps: give each as many batches, and what one of them leaves out, all leave out",
        diff=f"{agreed.format(test='bad')}\n-if bad:\n+if flag:\n     continue",
    )


AGREED = "+flag = torch.tensor(float({test}))\n+dist.all_reduce(flag, op=dist.ReduceOp.MAX)"
