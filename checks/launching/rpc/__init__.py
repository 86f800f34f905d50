"""Remote calls, by torch.distributed.rpc."""
