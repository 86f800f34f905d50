"""What the user's line calls that a rank waits in: a collective, or a call that gathers the shards of all ranks.

Nobody reads from `model.state_dict()`, or from `model(inputs)`, that it communicates: with FSDP and ZeRO it does.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from ddpdoctor.check import Fix, Site, calls_at

from ._one_rank import called, mend, shown

LONGEST = 60  # characters of a call that are shown
STATE = frozenset(
    "state_dict full_tensor get_state_dict get_model_state_dict get_optimizer_state_dict optim_state_dict "
    "full_optim_state_dict sharded_optim_state_dict".split()
)
"""What gathers the shards of all ranks, and returns what one of them writes."""
OTHERS = {
    "consolidate_state_dict": "gathers the optimizer's state from all ranks",
    "summon_full_params": "gathers the shards of all ranks",
    "unshard": "gathers the shards of all ranks",
    "clip_grad_norm_": "adds up the norms of all ranks' shards",
    **dict.fromkeys(("set_model_state_dict", "set_optimizer_state_dict", "set_state_dict"), "gives each rank its part"),
}


class Called(NamedTuple):
    """The call, what it does where its name does not say so, and how all ranks make it."""

    call: str
    does: str
    fix: Fix


def told_of(site: Site | None, operation: str, guard: str) -> Called:
    """Return what a line calls that some ranks skip; the operation is the communication that a rank waits in."""
    for call in calls_at(site.file, site.line) if site else ():
        name = ast.unparse(call.func).rpartition(".")[2]
        code = ast.unparse(call)
        told = code if len(code) <= LONGEST else f"{ast.unparse(call.func)}(...)"
        if name in STATE:
            return Called(told, ", which gathers the shards of all ranks", _kept(told, guard))
        if name in OTHERS:
            return Called(told, f", which {OTHERS[name]}", _moved(code, guard))
    what = called(site, operation)
    return Called(what, "", mend(what, guard))


def _kept(code: str, guard: str) -> Fix:
    return Fix(
        "call it on all ranks, and write what it returns on one",
        diff=f"+state = {code}\n {_test(guard)}:\n-    torch.save({code}, path)\n+    torch.save(state, path)",
    )


def _moved(code: str, guard: str) -> Fix:
    return Fix("call it on all ranks", diff=f"-{_test(guard)}:\n-    {code}\n+{code}")


def _test(guard: str) -> str:
    return shown(guard) if guard.startswith("under `if ") else "if rank == 0"
