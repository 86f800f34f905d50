"""Sharded tensors, pipelines, and partitions other than FSDP's."""
