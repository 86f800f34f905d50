"""A small training with two faults: forward leaves a layer out, and nobody tells the sampler the epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(8, 16)
        self.head = nn.Linear(16, 1)
        self.auxiliary = nn.Linear(16, 1)

    def forward(self, inputs):
        return self.head(self.backbone(inputs).relu())


def build_model():
    return Regressor()


def example_batch():
    return torch.randn(4, 8)


def build_loader(rank, world_size):
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    return DataLoader(data, batch_size=4, sampler=sampler)


def main():
    dist.init_process_group("gloo")
    model = DDP(build_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = build_loader(dist.get_rank(), dist.get_world_size())
    for epoch in range(3):
        # loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
