"""Whether code of this process is compiled: a compiler looks at hooks and at replaced functions, and compiles anew."""

from __future__ import annotations

import sys


def has_compiled() -> bool:
    """Whether torch.compile was called in this process, or has compiled something; nothing is imported for it.

    With ``fullgraph=True`` torch counts no frames. Its list of backends has a None for functions that are never
    compiled, as the steps of optimizers are; torch 2.2 has the last backend in its place.
    """
    context = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(context, "cached_backends", {}).values()
    if any(each is not None for each in backends) or getattr(context, "most_recent_backend", None) is not None:
        return True
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("frames") or counters.get("stats"))
