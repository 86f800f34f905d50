"""Which torch has a name: the first release of those from 2.2 on that has it, as read in their own files."""

from __future__ import annotations

SINCE = {
    "torch.accelerator": "2.6",
    "torch.get_default_device": "2.3",
    "torch.amp.GradScaler": "2.3",
    "torch.amp.custom_bwd": "2.4",
    "torch.amp.custom_fwd": "2.4",
    "torch.compiler.set_stance": "2.6",
    "torch.cuda.memory.MemPool": "2.5",
    "torch.distributed.checkpoint.HuggingFaceStorageReader": "2.8",
    "torch.distributed.checkpoint.HuggingFaceStorageWriter": "2.8",
    "torch.distributed.checkpoint.async_save": "2.3",
    "torch.distributed.checkpoint.format_utils": "2.3",
    "torch.distributed.checkpoint.staging": "2.4",
    "torch.distributed.checkpoint.state_dict": "2.2",
    "torch.distributed.checkpoint.state_dict_saver.AsyncCheckpointerType": "2.7",
    "torch.distributed.device_mesh": "2.2",
    "torch.distributed.fsdp.CPUOffloadPolicy": "2.6",
    "torch.distributed.fsdp.FSDPModule": "2.6",
    "torch.distributed.fsdp.MixedPrecisionPolicy": "2.6",
    "torch.distributed.fsdp.OffloadPolicy": "2.6",
    "torch.distributed.fsdp.UnshardHandle": "2.6",
    "torch.distributed.fsdp.fully_shard": "2.6",
    "torch.distributed.fsdp.register_fsdp_forward_method": "2.6",
    "torch.distributed.get_node_local_rank": "2.4",
    "torch.distributed.init_device_mesh": "2.4",
    "torch.distributed.pipelining": "2.4",
    "torch.distributed.pipelining.schedules.ScheduleZBVZeroBubble": "2.6",
    "torch.distributed.tensor.DTensor": "2.5",
    "torch.distributed.tensor.DeviceMesh": "2.5",
    "torch.distributed.tensor.Replicate": "2.5",
    "torch.distributed.tensor.Shard": "2.5",
    "torch.distributed.tensor.distribute_module": "2.5",
    "torch.distributed.tensor.distribute_tensor": "2.5",
    "torch.distributed.tensor.experimental": "2.5",
    "torch.distributed.tensor.experimental.context_parallel": "2.6",
    "torch.distributed.tensor.parallel.SequenceParallel": "2.3",
    "torch.distributed.tensor.parallel.loss_parallel": "2.3",
    "torch.library.custom_op": "2.4",
    "torch.nn.RMSNorm": "2.4",
    "torch.nn.attention": "2.3",
    "torch.nn.attention.flex_attention": "2.5",
    "torch.nn.utils.clip_grads_with_norm_": "2.6",
    "torch.nn.utils.get_total_norm": "2.6",
    "torch.serialization.add_safe_globals": "2.4",
    "torch.utils.checkpoint.CheckpointPolicy": "2.5",
    "torch.utils.checkpoint.create_selective_checkpoint_contexts": "2.5",
}
"""The release that each name, or each module, came with; 2.2 is that release, or one before."""

UNTIL = {"torch._six": "2.0", "torch.distributed.elastic.agent.server.api.log": "2.4"}
"""The first release that a name is gone from."""

COMPOSABLE = "in 2.4 and 2.5 it is in torch.distributed._composable.fsdp"
EARLIER = {
    **{f"torch.distributed.fsdp.{name}": COMPOSABLE for name in (
        "CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "fully_shard",
        "register_fsdp_forward_method",
    )},
    **{f"torch.distributed.tensor.{name}": "before, it is in torch.distributed._tensor" for name in (
        "DTensor", "DeviceMesh", "Replicate", "Shard", "distribute_module", "distribute_tensor",
    )},
    "torch.amp.GradScaler": "before, it is torch.cuda.amp.GradScaler",
    "torch.distributed.init_device_mesh": "in 2.2 and 2.3 it is in torch.distributed.device_mesh",
}  # fmt: skip
"""Where a name is found in releases before."""
