"""A training that hangs: rank 0 alone calls a barrier before it saves."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    if step % 10 == 9 and dist.get_rank() == 0:
        dist.barrier()
        torch.save(model.state_dict(), "last.pt")
dist.destroy_process_group()
