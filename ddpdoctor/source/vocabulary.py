"""Names of torch.distributed and of the frameworks, as the checks ask for them."""

from __future__ import annotations

import re

INIT = "torch.distributed.init_process_group"
ACCELERATOR = "accelerate.Accelerator"
DATA_PARALLEL = "torch.nn.parallel.DataParallel"
DDP = "torch.nn.parallel.DistributedDataParallel"
FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"
FULLY_SHARD = "torch.distributed.fsdp.fully_shard"
CLIP_NORM = "torch.nn.utils.clip_grad_norm_"
GROUPS = (
    ACCELERATOR,
    "deepspeed.initialize",
    "deepspeed.init_distributed",
    "horovod.torch.init",
)
"""What the scripts of frameworks call that run in each rank from their first line."""
COLLECTIVES = frozenset(
    f"torch.distributed.{name}"
    for name in (
        "all_gather all_gather_coalesced all_gather_into_tensor all_gather_object all_reduce all_reduce_coalesced"
        " all_to_all all_to_all_single barrier broadcast broadcast_object_list gather gather_object monitored_barrier"
        " reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list"
    ).split()
)
FRAMEWORKS = frozenset(
    "accelerate catalyst colossalai composer deepspeed detectron2 fairscale fairseq fastai fvcore horovod ignite"
    " lightning lightning_fabric megatron mmcv mmengine oneflow paddle pl_bolts pytorch_lightning ray transformers"
    " torchtnt".split()
)
"""They can set the epoch, choose the device, guard what is written or reduce: where one is imported, little is certain
that a file does not do."""
PARTS = ("catalyst.data.", "catalyst.contrib.", "fvcore.nn.", "fvcore.common.config")
"""What of them is taken into a loop of the user's own: samplers, losses, settings."""
OF_RANKS = re.compile(r"torch\.distributed|DistributedDataParallel|DistributedSampler")
RANK_NAME = re.compile(r"_*(\w+_)?rank|_*(replica|process|proc|shard)_(id|idx|index)")
"""Names under which a sampler or a script holds the number of its rank."""
