"""How a model that is sharded is saved whole."""

from __future__ import annotations

from ddpdoctor.check import Fix

WHOLE = Fix(
    "gather the shards on all ranks, and let rank 0 write",
    diff="-torch.save(model.state_dict(), path)\n"
    "+options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
    "+state = get_model_state_dict(model, options=options)   # of torch.distributed.checkpoint.state_dict\n"
    "+if torch.distributed.get_rank() == 0:\n+    torch.save(state, path)",
)
