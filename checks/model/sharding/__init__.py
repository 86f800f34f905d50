"""FSDP and sharded tensors."""
