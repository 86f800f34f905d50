"""Saves what a compiled model under DDP has: its keys carry two prefixes."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
model = DDP(torch.compile(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 1))))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
torch.save({"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
dist.destroy_process_group()
