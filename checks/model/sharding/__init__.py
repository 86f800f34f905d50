"""FSDP and fully_shard."""
