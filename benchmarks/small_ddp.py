"""A small data-parallel training that times its own steps: small_ddp.py STEPS RESULT."""

import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WARM_UP = 20


def main() -> None:
    """Train for so many steps, and write rank 0's median."""
    steps, result = int(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(4096, 64), torch.randn(4096, 8))
    sampler: DistributedSampler[object] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    layers = [nn.Linear(64, 256), nn.ReLU(), *(each for _ in range(4) for each in (nn.Linear(256, 256), nn.ReLU()))]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(256, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seconds: list[float] = []
    epoch = 0
    while len(seconds) < steps:
        sampler.set_epoch(epoch)
        began = time.perf_counter()
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            optimizer.step()
            seconds.append(-began + (began := time.perf_counter()))
        epoch += 1
    if dist.get_rank() == 0:
        result.write_text(json.dumps(statistics.median(seconds[WARM_UP:])))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
