"""A training that is slow: the part of the data that rank 2 reads lies on a slower disk."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Samples(Dataset):
    def __len__(self):
        return 4 * 120

    def __getitem__(self, index):
        time.sleep(0.04 if dist.get_rank() == 2 else 0.004)
        return torch.randn(256), torch.randn(1)


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Samples()
    loader = DataLoader(data, batch_size=1, sampler=DistributedSampler(data))
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
