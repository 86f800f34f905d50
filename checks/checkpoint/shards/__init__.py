"""Checkpoints in shards: FSDP, DeepSpeed ZeRO, ZeroRedundancyOptimizer, DCP."""
