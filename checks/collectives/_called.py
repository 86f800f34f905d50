"""What the user's line calls that a rank waits in: a collective, or a call that gathers the shards of all ranks.

Nobody reads from `model.state_dict()`, or from `model(inputs)`, that it communicates: with FSDP and ZeRO it does.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from ddpdoctor.check import Fix, Site, calls_at

LONGEST = 60  # characters of a call that are shown
ALL_CALL = "let all ranks call the collective, and print or save on rank 0 only"
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

    told: str
    does: str
    fix: Fix


def called_at(site: Site | None, operation: str, test: str) -> Called:
    """Return what a line calls under a condition on the rank; the operation is the communication that it waits in."""
    for call in calls_at(site.file, site.line) if site else ():
        name = ast.unparse(call.func).rpartition(".")[2]
        code = ast.unparse(call)
        shown = code if len(code) <= LONGEST else f"{ast.unparse(call.func)}(...)"
        if name in STATE:
            return Called(shown, ", which gathers the shards of all ranks", _kept(shown, test))
        if name in OTHERS:
            return Called(shown, f", which {OTHERS[name]}", _moved("call it on all ranks", code, test))
    return Called(operation, "", _moved(ALL_CALL, f"{operation}(...)", test))


def _kept(code: str, test: str) -> Fix:
    return Fix(
        "call it on all ranks, and write what it returns on one",
        diff=f"+state = {code}\n if {test}:\n-    torch.save({code}, path)\n+    torch.save(state, path)",
    )


def _moved(summary: str, code: str, test: str) -> Fix:
    return Fix(summary, diff=f"-if {test}:\n-    {code}\n+{code}")
