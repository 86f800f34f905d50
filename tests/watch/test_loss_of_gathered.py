"""A loss without a graph that all came out of a gather, read off the lines that make it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.check import Site
from ddpdoctor.checks.model.backward._cut_by_gather import gather_of_loss

HEAD = "import torch.nn.functional as F\nimport torch.distributed as dist\nfrom losses import nt_xent\n"
STEP = HEAD + "class Net(LightningModule):\n    def training_step(self, batch, i):\n        x, y = batch\n"
FIT = "\nTrainer().fit(Net())\n"
FABRIC = HEAD + "def train(fabric, model, loader):\n    for x in loader:\n        z = model(x)\n"
GATHERED = {
    "Lightning": STEP + "        z = self.all_gather(self.net(x)).flatten(0, 1)\n        return nt_xent(z, z)" + FIT,
    "a dict": STEP + "        z = self.all_gather(self.net(x))\n        loss = nt_xent(z)\n"
    '        return {"loss": loss, "z": z}' + FIT,
    "a criterion": STEP + "        z = self.all_gather(self.net(x), sync_grads=False)\n"
    "        return self.criterion(z)" + FIT,
    "Fabric": FABRIC + "        z = fabric.all_gather(z)\n        fabric.backward(nt_xent(z))",
    "Accelerate": FABRIC + "        z = accelerator.gather(z)\n        accelerator.backward(nt_xent(z))",
    "torch": FABRIC + "        every = [torch.empty_like(z) for _ in range(2)]\n        dist.all_gather(every, z)\n"
    "        loss = nt_xent(torch.cat(every))\n        loss.backward()",
}
NOT = {
    "with gradients": STEP
    + "        z = self.all_gather(self.net(x), sync_grads=True)\n        return nt_xent(z)"
    + FIT,
    "as it is asked": STEP
    + "        z = self.all_gather(self.net(x), sync_grads=SYNC)\n        return nt_xent(z)"
    + FIT,
    "own ones beside": STEP + "        z = self.net(x)\n        every = self.all_gather(z)\n"
    "        return nt_xent(z, every)" + FIT,
    "a head behind it": STEP
    + "        z = self.all_gather(self.net(x))\n        return F.mse_loss(self.head(x), z)"
    + FIT,
    "labels alone": STEP + "        y = self.all_gather(y)\n        return F.cross_entropy(self.net(x), y)" + FIT,
    "detached": STEP + "        z = self.net(x).detach()\n        return nt_xent(z)" + FIT,
    "torch.gather": FABRIC + "        z = z.gather(1, x)\n        nt_xent(z).backward()",
    "nothing gathered": FABRIC + "        loss = nt_xent(z)\n        loss.backward()",
    "functional": FABRIC + "        z = dist.nn.functional.all_gather(z)\n        nt_xent(z).backward()",
}


def found(code: str, tmp_path: Path) -> str:
    """Return the gather that is found for the last line of a program."""
    path = tmp_path / "train.py"
    path.write_text(code)
    gather = gather_of_loss(Site(str(path), len(code.rstrip().splitlines()), ""))
    return gather.shown if gather is not None else ""


@pytest.mark.parametrize("name", GATHERED)
def test_the_gather_is_found(name: str, tmp_path: Path) -> None:
    """Where all of the loss comes out of a gather without gradients, that is what is named."""
    assert found(GATHERED[name], tmp_path).endswith("gather")


@pytest.mark.parametrize("name", NOT)
def test_other_losses_are_left(name: str, tmp_path: Path) -> None:
    """Where something of the loss can carry a gradient, or is cut by something else, no gather is blamed."""
    assert not found(NOT[name], tmp_path)
