"""Small trainings with the frameworks that people train with, each of them healthy; and what reports of them say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from helpers import LOAD

HIDDEN = 256  # the random states that Accelerate broadcasts are small next to such a model

ACCELERATE = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from accelerate import Accelerator, FullyShardedDataParallelPlugin, PartialState
from accelerate.utils import set_seed

def data(samples):
    return TensorDataset(torch.randn(samples, 8), torch.randint(0, 2, (samples,)))

def report(accelerator, loss):
    print("loss", accelerator.gather(loss.detach()).mean().item())

def main():
    set_seed(3)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(data(64), batch_size=4, shuffle=True)
    model = nn.Sequential(nn.Linear(8, {HIDDEN}), nn.ReLU(), nn.Linear({HIDDEN}, {HIDDEN}), nn.Linear({HIDDEN}, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(4):
        for inputs, targets in loader:
            loss = criterion(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        report(accelerator, loss)
    accelerator.wait_for_everyone()
    del loss
    model, optimizer, loader = accelerator.free_memory(model, optimizer, loader)
    accelerator.end_training()

if __name__ == "__main__":
    main()
"""
LOOP = """            loss = criterion(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
"""
ACCUMULATED = f"""            with accelerator.accumulate(model):
{LOOP.replace("            ", "                ")}"""
LIGHTNING = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import lightning as L
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only

class Data(L.LightningDataModule):
    def setup(self, stage=None):
        drawn = torch.Generator().manual_seed(3)
        self.train, self.val = (
            TensorDataset(torch.randn(samples, 8, generator=drawn), torch.randint(0, 2, (samples,), generator=drawn))
            for samples in (64, 32)
        )

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=4, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=4)

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def training_step(self, batch, index):
        inputs, targets = batch
        return F.cross_entropy(self.body(inputs), targets)

    def validation_step(self, batch, index):
        inputs, targets = batch
        loss = F.cross_entropy(self.body(inputs), targets)
        self.log("val_loss", loss, sync_dist=True)

    def on_train_epoch_end(self):
        self.all_gather(torch.ones(1))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

def main():
    L.seed_everything(3)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=3, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[ModelCheckpoint(monitor="val_loss")],
    )
    trainer.fit(Net(), datamodule=Data())
    trainer.save_checkpoint("last.ckpt")

if __name__ == "__main__":
    main()
"""
FABRIC = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from lightning.fabric import Fabric

def main():
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(3)
    model = nn.Sequential(nn.Linear(8, {HIDDEN}), nn.ReLU(), nn.Linear({HIDDEN}, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4, shuffle=True)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(loader)
    for epoch in range(3):
        for (inputs,) in loader:
            optimizer.zero_grad()
            loss = model(inputs).square().mean()
            fabric.backward(loss)
            optimizer.step()
        fabric.all_gather(loss.detach())
    fabric.save("last.ckpt", {{"model": model}})

if __name__ == "__main__":
    main()
"""
TRAINER = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

class Data(Dataset):
    def __init__(self, samples):
        drawn = torch.Generator().manual_seed(0)
        self.x, self.y = torch.randn(samples, 8, generator=drawn), torch.randint(0, 2, (samples,), generator=drawn)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.y[index]}

class Net(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        self.post_init()

    def forward(self, x, labels=None):
        logits = self.body(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}

def metrics(seen):
    return {"accuracy": float((seen.predictions.argmax(-1) == seen.label_ids).mean())}

class Mine(Trainer):
    pass

def main():
    args = TrainingArguments(
        output_dir="out", num_train_epochs=3, per_device_train_batch_size=4, use_cpu=True, report_to=[],
        save_strategy="no", eval_strategy="epoch", disable_tqdm=True, logging_steps=4,
    )
    trainer = Mine(
        model=Net(PretrainedConfig()), args=args, train_dataset=Data(64), eval_dataset=Data(30),
        compute_metrics=metrics,
    )
    trainer.train()
    trainer.evaluate()
    trainer.save_model()

if __name__ == "__main__":
    main()
"""


LATE = {"process-group-never-joined", "slow-rank"}
"""What notes are of that tell of a late rank: on a slow machine one is told before the fault that follows."""


def hang_after(seconds: float) -> tuple[str, str]:
    """Return the option that has a rank wait for others so long, on a machine that does nothing else."""
    return "--hang-after", f"{seconds * LOAD:.0f}"


def faults(results: list[Any]) -> list[Any]:
    """Return what is found beside the notes of ranks that are late."""
    return [
        each
        for each in results
        if each["slug"] not in LATE or any(finding["severity"] != "note" for finding in each["findings"])
    ]


def results_in(report: Path, done: subprocess.CompletedProcess[str]) -> list[Any]:
    """Return what is found in a training, as its report has it; where that is nothing, the training has worked."""
    results = json.loads(report.read_text())["results"]
    assert results or done.returncode == 0, done.stderr
    return list(results)
