"""The hello-world of DDP: what a user's two-rank gloo job costs under torchrun."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    del model
    dist.destroy_process_group()
