"""What signs of models share: messages that several causes print, and what stands beside them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpdoctor.check import FRAMEWORK_WORDS, Log, Record

if TYPE_CHECKING:
    from ddpdoctor.check import Evidence

TRAINER = r"transformers[/\\]trainer\w*\.py"
REPLICA = r"Caught \w+ in replica (\d+) on device (\d+)"
NOT_ON_FIRST = (
    r"module must have its parameters and buffers on device (\S+) \(device_ids\[0\]\)"
    r" but found one of them on device: (\S+)"
)
WRAPPED_TWICE = r"parallel[/\\]distributed\.py[\s\S]*?parallel[/\\]data_parallel\.py"
SEVERAL = r"torch[./\\]distributed[./\\]|torchrun|DistributedDataParallel|local_rank|_ddp_forward|in _run_ddp"
IN_PARALLEL = r"parallel[/\\](?:data_parallel|parallel_apply)\.py|self\.parallel_apply\(|output\.reraise\(\)"
DDP_SENDS = r"_sync_module_states|_sync_params_and_buffers|_sync_buffers|_broadcast_coalesced"
NO_GRADIENT = (
    r"Expected to have finished reduction in the prior iteration"
    r"|parameters that were not used in producing the loss returned by training_step"
)
ALTERNATING = r"manual_backward\(|in manual_backward|toggle_optimizer\("
MODIFIED = (
    r"inplace operation:\s+\[([\w.]+ \[[\d, ]*\])\](?:,\s+which is output \d+ of (\w+),?)?"
    r"\s+is at version\s+(\d+);\s+expected version\s+(\d+)"
)
SEARCHES = r"find_unused_parameters=True was specified in DDP constructor|find_unused_parameters['\"]?\s*:\s*True"
OUTSIDE = re.compile(r"\n\s+\S[^\n]*\.module\.\w+[^\n]*")
APEX = frozenset(
    "buckets_ready_size bucket_sizes buckets next_bucket ready_buckets_not_reduced bucket_streams bucket_events"
    " param_id_to_bucket param_type_to_tmp_i tmp_buckets tmp_numels needs_refresh bucket_pgs main_stream".split()
)

FIND_UNUSED = (
    (r"lightning[/\\]pytorch|pytorch_lightning|LightningModule", FRAMEWORK_WORDS["Lightning"].unused),
    (r"lightning[/\\]fabric|lightning_fabric", FRAMEWORK_WORDS["Fabric"].unused),
    (r"lightning", FRAMEWORK_WORDS["Lightning"].unused),
    (TRAINER, FRAMEWORK_WORDS["the transformers Trainer"].unused),
    (r"accelerate[/\\]", FRAMEWORK_WORDS["Accelerate"].unused),
    (r"\b(?:mmcv|mmengine|mmdet\w*|mmseg\w*)\b", "find_unused_parameters = True  # in the config"),
)
BY_HAND = "DDP(model, find_unused_parameters=True)"


def find_unused(text: str) -> str:
    """Return the line that switches the search for unused parameters on, as the framework of the traceback wants it."""
    return next((line for log_pattern, line in FIND_UNUSED if re.search(log_pattern, text)), BY_HAND)


def beside(record: Record, log: Log, pattern: str) -> tuple[Evidence, ...]:
    """Quote where a declared pattern stands: in the record itself, else first in the log; empty if nowhere."""
    if match := re.search(pattern, record.text):
        return (record.proof(match),)
    found = log.first(pattern)
    return (found[0].proof(found[1]),) if found else ()


def outside_forward(record: Record) -> re.Match[str] | None:
    """Find a line of the traceback that reads the model behind the wrapper."""
    return OUTSIDE.search(record.text)


def is_private(record: Record, name: str) -> bool:
    """Whether an attribute is of torch's own wrapper, which only an installed package reads, and not of the model."""
    if name in PRIVATE:
        return True
    readers = [frame for frame in record.frames if not frame.file.replace("\\", "/").endswith("nn/modules/module.py")]
    return name.startswith("_") and bool(readers) and not readers[-1].is_users


PRIVATE = frozenset(
    "num_iterations _specify_ddp_gpu_num _sync_params_and_buffers _ddp_init_helper _queue_reduction modules_buffers"
    " modules_params _distributed_broadcast_coalesced"
    " _sync_params _sync_buffers _use_replicated_tensor_module _module_copies _rebuild_buckets _pre_forward"
    " _post_forward _passing_sync_batchnorm_handle _find_tensors require_forward_param_sync".split()
)
