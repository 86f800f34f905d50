"""The options of the launchers: which take a value, and which none."""

from __future__ import annotations

TORCHRUN, LAUNCH, ACCELERATE, DEEPSPEED = "torchrun", "torch.distributed.launch", "accelerate launch", "deepspeed"
FLAGS = {
    TORCHRUN: "standalone m module no-python run-path virtual-local-rank",
    LAUNCH: "standalone m module no-python run-path virtual-local-rank use-env",
    ACCELERATE: "cpu debug downcast-bf16 dynamo-use-dynamic dynamo-use-fullgraph dynamo-use-regional-compilation"
    " enable-cpu-affinity fp8-use-autocast-during-eval m module multi-gpu no-python no-tpu-cluster q quiet same-network"
    " tpu tpu-cluster tpu-use-sudo use-deepspeed use-fsdp use-megatron-lm use-parallelism-config",
    DEEPSPEED: "save-pid elastic-training no-local-rank no-ssh module no-python force-multi bind-cores-to-rank"
    " no-ssh-check",
}
"""The options that take no value."""
VALUES = {
    TORCHRUN: "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval"
    " start-method event-log-handler role log-dir r redirects t tee local-ranks-filter duplicate-stdout-filters"
    " duplicate-stderr-filters node-rank master-addr master-port local-addr logs-specs numa-binding signals-to-handle"
    " shutdown-timeout",
    ACCELERATE: "config-file num-processes num-machines machine-rank main-process-ip main-process-port mixed-precision"
    " gpu-ids num-cpu-threads-per-process rdzv-backend rdzv-conf max-restarts monitor-interval main-training-function"
    " dynamo-backend dynamo-mode deepspeed-config-file zero-stage gradient-accumulation-steps gradient-clipping"
    " offload-optimizer-device offload-param-device deepspeed-hostfile deepspeed-multinode-launcher zero3-init-flag"
    " zero3-save-16bit-model fsdp-sharding-strategy fsdp-auto-wrap-policy fsdp-offload-params fsdp-state-dict-type"
    " fsdp-transformer-layer-cls-to-wrap fsdp-version mpirun-hostfile mpirun-ccl"
    " aws-access-key-id aws-secret-access-key deepspeed-exclusion-filter deepspeed-inclusion-filter deepspeed-"
    " moe-layer-cls-names env fp8-amax-compute-algo fp8-amax-history-len fp8-backend fp8-enable-fsdp-"
    " float8-all-gather fp8-format fp8-interval fp8-margin fp8-opt-level fp8-override-linear-precision fp8-pad-"
    " inner-dim fsdp-activation-checkpointing fsdp-activation-checkpointing-offload fsdp-backward-prefetch"
    " fsdp-cpu-ram-efficient-loading fsdp-forward-prefetch fsdp-min-num-params fsdp-reshard-after-forward fsdp-"
    " sync-module-states fsdp-use-orig-params log-dir megatron-lm-attention-backend megatron-lm-attention-"
    " dropout megatron-lm-attention-softmax-in-fp32 megatron-lm-calculate-per-token-loss megatron-lm-context-"
    " parallel-size megatron-lm-decoder-last-pipeline-num-layers megatron-lm-eod-mask-loss megatron-lm-expert-"
    " model-parallel-size megatron-lm-expert-tensor-parallel-size megatron-lm-gradient-clipping megatron-lm-"
    " hidden-dropout megatron-lm-no-load-optim megatron-lm-no-save-optim megatron-lm-num-micro-batches"
    " megatron-lm-optimizer-cpu-offload megatron-lm-overlap-cpu-optimizer-d2h-h2d megatron-lm-pp-degree"
    " megatron-lm-recompute-activations megatron-lm-recompute-granularity megatron-lm-recompute-method"
    " megatron-lm-recompute-num-layers megatron-lm-sequence-parallelism megatron-lm-tp-degree megatron-lm-use-"
    " custom-fsdp megatron-lm-use-distributed-optimizer megatron-lm-use-precision-aware-optimizer megatron-lm-"
    " use-rotary-position-embeddings offload-optimizer-nvme-path offload-param-nvme-path parallelism-config-cp-"
    " backend parallelism-config-cp-comm-strategy parallelism-config-cp-size parallelism-config-dp-replicate-"
    " size parallelism-config-dp-shard-size parallelism-config-sp-attn-implementation parallelism-config-sp-"
    " backend parallelism-config-sp-seq-length parallelism-config-sp-seq-length-is-variable parallelism-config-"
    " sp-size parallelism-config-tp-size role tee vm",
    DEEPSPEED: "num-gpus num-nodes hostfile H i include e exclude master-port master-addr launcher launcher-args"
    " enable-each-rank-log autotuning min-elastic-nodes max-elastic-nodes node-rank bind-core-list ssh-port"
    " venv-script",
}
VALUES[LAUNCH] = VALUES[TORCHRUN]


def launcher_options(tool: str) -> tuple[str, ...]:
    """Return the names of a launcher's options, with hyphens."""
    return (*FLAGS[tool].split(), *VALUES[tool].split())


def whole_name(tool: str, key: str, known: set[str]) -> str:
    """Return the option whose name a word begins, if it is of one alone: argparse takes that, Accelerate does not."""
    begun = [name for name in known if name.startswith(key)] if key not in known and len(key) > 1 else []
    return begun[0] if len(begun) == 1 and tool != ACCELERATE else key
