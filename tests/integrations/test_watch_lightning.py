"""What users of Lightning and Fabric get wrong, with the real package and its own launcher: told in its words."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from frameworks import FABRIC, LIGHTNING, hang_after
from helpers import Run, Script

pytestmark = pytest.mark.skipif(find_spec("lightning") is None, reason="needs lightning")
SAVER = """class Saver(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.is_global_zero:
            trainer.save_checkpoint("best.ckpt")

def main():"""
DECORATED = SAVER.replace("        if trainer.is_global_zero:\n    ", "").replace(
    "    def on", "    @rank_zero_only\n    def on"
)
STEP = "        return F.cross_entropy(self.body(inputs), targets)\n\n    def validation_step"
BY_HAND = """        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = F.cross_entropy(self.body(inputs), targets)
        self.manual_backward(loss)
        optimizer.step()

    def validation_step"""
MANUAL = (
    ("        self.body =", "        self.automatic_optimization = False\n        self.body ="),
    (STEP, BY_HAND),
)
SHARE = "torch.utils.data.Subset(self.train, range(self.trainer.global_rank, 64, 2))"
CHECKPOINT = 'ModelCheckpoint(monitor="val_loss")'
UNFREEZES = (
    "        inputs, targets = batch\n        return",
    "        self.body[0].requires_grad_(self.global_step > 0)\n        inputs, targets = batch\n        return",
)
FROZEN = "nn.Linear(16, 2))\n        self.body[0].requires_grad_(False)"
LEARNING = "[each for each in self.parameters() if each.requires_grad]"
FREEZES = "    def on_train_start(self):\n        self.body[0].requires_grad_(False)\n\n    def training_step"
GATHERED = "self.all_gather(torch.ones(1))"
OPTIMIZER = "        return torch.optim.SGD(self.parameters(), lr=0.01)"
SCHEDULED = """        optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps={steps})
        return {{"optimizer": optimizer, "lr_scheduler": {{"scheduler": schedule, "interval": "step"}}}}"""
STOPS = (
    "def on_train_epoch_end(self):",
    "def on_train_epoch_end(self):\n        self.trainer.should_stop = self.current_epoch == 2",
)
COUNTED = """        z = self.all_gather(self.body(inputs)).flatten(0, 1)
        return F.cross_entropy(z, targets.repeat(2))

    def validation_step"""
CONTRASTED = COUNTED.replace("self.body(inputs))", "self.body(inputs), sync_grads=True)")
QUANTISER = """class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(4, 16))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, z):
        nearest = torch.cdist(z, self.codes).argmin(1)
        found = self.codes[nearest]
        if self.training:
            with torch.no_grad():
                sums = F.one_hot(nearest, 4).float().T @ z
                self.sums.mul_(0.9).add_(sums, alpha=0.1)
                self.codes.copy_(self.sums)
        return z + (found - z).detach()

class Net("""
CODED = (
    ("class Net(", QUANTISER),
    ("nn.ReLU(), nn.Linear(16, 2))\n\n    def training", "nn.ReLU(), Codes(), nn.Linear(16, 2))\n\n    def training"),
)
ADDED_UP = ("float().T @ z\n", "float().T @ z\n                torch.distributed.all_reduce(sums)\n")
PREDICTED = (
    ("    trainer.save_checkpoint", "    predict(trainer)\n    trainer.save_checkpoint"),
    (
        "def main():",
        """def predict(trainer):
    rows = torch.cat(trainer.predict(Predicting(), DataLoader(torch.randn(24, 8), batch_size=4)))
    if trainer.is_global_zero:
        torch.save(rows, "predictions.pt")

class Predicting(Net):
    def predict_step(self, batch, index):
        return self.body(batch).argmax(1)

def main():""",
    ),
)
GATHERS = (
    "    parts = [None, None]\n    torch.distributed.all_gather_object(parts, rows)\n    rows = torch.cat(parts)\n"
)
OF_FABRIC = "        fabric.all_gather(loss.detach())\n"

TESTS = """    def test_step(self, batch, index):
        inputs, targets = batch
        self.log("test_loss", F.cross_entropy(self.body(inputs), targets))

"""

Edits = tuple[tuple[str, str], ...]
TRAIN_LOADER = "    def train_dataloader(self):\n"
SPLIT_IN_SETUP = """        own = torch.Generator()
        own.seed()
        self.train, _ = torch.utils.data.random_split(self.train, [56, 8], own)

"""
BROKEN: dict[str, tuple[str, str, str, Edits]] = {
    "the metric is not reduced": (
        LIGHTNING,
        "monitored-metric-of-one-rank",
        "sync_dist=True",
        ((", sync_dist=True", ""),),
    ),
    "a test that is not reduced": (
        LIGHTNING,
        "monitored-metric-of-one-rank",
        "sync_dist=True",
        (
            (
                "    def on_train_epoch_end",
                TESTS + "    def on_train_epoch_end",
            ),
            (
                '    trainer.save_checkpoint("last.ckpt")',
                "    trainer.test(trainer.model, Data.val_dataloader(trainer.datamodule))",
            ),
        ),
    ),
    "a schedule of one process": (
        LIGHTNING,
        "schedule-counts-unshared-steps",
        "+steps = self.trainer.estimated_stepping_batches",
        ((OPTIMIZER, SCHEDULED.format(steps="3 * (64 // 4)")),),
    ),
    "a loss of gathered outputs": (
        LIGHTNING,
        "loss-without-graph",
        "+self.all_gather(self.body(inputs), sync_grads=True)",
        ((STEP, COUNTED),),
    ),
    "codes of one rank's samples": (LIGHTNING, "statistics-of-one-rank", "+dist.all_reduce(sums)", CODED),
    "heads in a plain list": (
        LIGHTNING,
        "gradients-exchanged-in-part",
        "+self.heads = nn.ModuleList(",
        (
            ("nn.Linear(16, 2))\n", "nn.Linear(16, 2))\n        self.heads = [nn.Linear(2, 2)]\n"),
            (
                "F.cross_entropy(self.body(inputs), targets)\n\n    def validation",
                "F.cross_entropy(self.heads[0](self.body(inputs)), targets)\n\n    def validation",
            ),
            ("self.parameters()", "[*self.parameters(), *self.heads[0].parameters()]"),
        ),
    ),
    "a checkpoint in a callback": (
        LIGHTNING,
        "rank0-only-collective",
        "+trainer.save_checkpoint(...)",
        (("def main():", SAVER), (CHECKPOINT, "Saver()")),
    ),
    "a checkpoint in a decorated callback": (
        LIGHTNING,
        "rank0-only-collective",
        "trainer.save_checkpoint(...)",
        (
            ("def main():", DECORATED),
            (CHECKPOINT, "Saver()"),
        ),
    ),
    "a checkpoint at the end": (
        LIGHTNING,
        "rank0-only-collective",
        "+trainer.save_checkpoint(...)",
        (("    trainer.save_checkpoint", "    if trainer.is_global_zero:\n        trainer.save_checkpoint"),),
    ),
    "a gather under a test": (
        LIGHTNING,
        "rank0-only-collective",
        "result = self.all_gather(...)",
        ((GATHERED, f"if self.trainer.is_global_zero:\n            {GATHERED}"),),
    ),
    "backward of the loss": (
        LIGHTNING,
        "framework-backward-bypassed",
        "+self.manual_backward(loss)",
        (*MANUAL, ("self.manual_backward(loss)", "loss.backward()")),
    ),
    "no sampler": (
        LIGHTNING,
        "no-distributed-sampler",
        "-trainer = Trainer(use_distributed_sampler=False, ...)",
        (('strategy="ddp"', 'strategy="ddp", use_distributed_sampler=False'),),
    ),
    "one rank writes what it has predicted": (
        LIGHTNING,
        "predictions-of-one-rank",
        "+dist.all_gather_object(parts, rows)",
        PREDICTED,
    ),
    "a layer unfrozen that no optimizer holds": (
        LIGHTNING,
        "optimizer-holds-other-parameters",
        "+torch.optim.SGD(self.parameters(), lr=lr)",
        (("nn.Linear(16, 2))", FROZEN), UNFREEZES, ("self.parameters()", LEARNING)),
    ),
    "each rank splits for itself": (
        LIGHTNING,
        "dataset-splits-differ",
        "generator=torch.Generator().manual_seed(0)",
        ((TRAIN_LOADER, SPLIT_IN_SETUP + TRAIN_LOADER),),
    ),
    "data read in prepare_data": (
        LIGHTNING,
        "state-set-in-prepare-data",
        "+    self.val = ...",
        (("def setup(self, stage=None)", "def prepare_data(self)"),),
    ),
    "Fabric: the loader is not set up": (
        FABRIC,
        "no-distributed-sampler",
        "+loader = fabric.setup_dataloaders(loader)",
        (("    loader = fabric.setup_dataloaders(loader)\n", ""),),
    ),
    "Fabric: the model is not set up": (
        FABRIC,
        "gradients-not-exchanged",
        "+model, optimizer = fabric.setup(model, optimizer)",
        (("    model, optimizer = fabric.setup(model, optimizer)\n", ""), (OF_FABRIC, ""), ('{"model": model}', "{}")),
    ),
    "Fabric: a gather under a test": (
        FABRIC,
        "rank0-only-collective",
        "result = fabric.all_gather(...)",
        ((OF_FABRIC, "        if fabric.is_global_zero:\n            fabric.all_gather(loss.detach())\n"),),
    ),
    "Fabric: saved by one rank": (
        FABRIC,
        "rank0-only-collective",
        "+fabric.save(...)",
        ((OF_FABRIC, '        if fabric.global_rank == 0:\n            fabric.save("best.ckpt", {"model": model})\n'),),
    ),
}
HEALTHY: dict[str, tuple[str, Edits]] = {
    "Lightning": (LIGHTNING, ()),
    "codes of all ranks' samples": (LIGHTNING, (*CODED, ADDED_UP)),
    "a schedule of one rank": (
        LIGHTNING,
        ((OPTIMIZER, SCHEDULED.format(steps="self.trainer.estimated_stepping_batches")),),
    ),
    "a schedule of a training that stops early": (
        LIGHTNING,
        ((OPTIMIZER, SCHEDULED.format(steps="6 * 8")), ("max_epochs=3", "max_epochs=6"), STOPS),
    ),
    "a loss of outputs gathered with their gradients": (LIGHTNING, ((STEP, CONTRASTED),)),
    "all ranks split alike": (
        LIGHTNING,
        ((TRAIN_LOADER, SPLIT_IN_SETUP.replace("own.seed()", "own.manual_seed(7)") + TRAIN_LOADER),),
    ),
    "manual optimization": (LIGHTNING, MANUAL),
    "stops early": (LIGHTNING, ((CHECKPOINT, 'EarlyStopping(monitor="val_loss")'),)),
    "each rank validates on all": (
        LIGHTNING,
        (
            (", sync_dist=True", ""),
            ('strategy="ddp"', 'strategy="ddp", use_distributed_sampler=False'),
            (
                "self.train, batch_size=4, shuffle=True",
                f"{SHARE}, batch_size=4",
            ),
        ),
    ),
    "a sampler of its own": (
        LIGHTNING,
        (
            (
                "batch_size=4, shuffle=True",
                "batch_size=4, sampler=torch.utils.data.DistributedSampler(self.train)",
            ),
        ),
    ),
    "predictions are gathered batch by batch": (
        LIGHTNING,
        (
            *PREDICTED,
            ("return self.body(batch).argmax(1)", "return self.all_gather(self.body(batch).argmax(1)).flatten()"),
        ),
    ),
    "predictions are gathered before one rank writes them": (
        LIGHTNING,
        (*PREDICTED, ("    if trainer.is_global_zero:\n", f"{GATHERS}    if trainer.is_global_zero:\n")),
    ),
    "a layer unfrozen that is in the optimizer": (
        LIGHTNING,
        (
            ("    def training_step", FREEZES),
            UNFREEZES,
            ('strategy="ddp"', 'strategy="ddp_find_unused_parameters_true"'),
        ),
    ),
    "one rank prints": (LIGHTNING, ((GATHERED, "self.trainer.is_global_zero and self.print(1)"),)),
    "Fabric": (FABRIC, ()),
    "Fabric: backward of the loss": (FABRIC, (("fabric.backward(loss)", "loss.backward()"),)),
}
ALSO_BY_DAY = {"the metric is not reduced", "each rank splits for itself"}

Watched = Callable[[str, Edits], tuple["subprocess.CompletedProcess[str]", list[dict[str, Any]]]]


@pytest.fixture
def watched(ddpdoctor: Run, script: Script, python: str, tmp_path: Path) -> Watched:
    """Return what runs a script, which starts its second rank by itself, and returns what was found."""

    def run(text: str, edits: Edits) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
        for before, after in edits:
            assert before in text, before
            text = text.replace(before, after)
        report = tmp_path / "report.json"
        options = (*hang_after(5), "--on-finding", "raise", "--report", str(report))
        done = ddpdoctor("run", *options, "--", python, script(text), cwd=tmp_path)
        return done, json.loads(report.read_text())["results"]

    return run


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALSO_BY_DAY else pytest.mark.nightly) for name in BROKEN]
)
def test_a_mistake_is_told_first_in_the_frameworks_words(watched: Watched, name: str) -> None:
    """The check, the user's file, and the lines to paste."""
    text, slug, fix, edits = BROKEN[name]
    done, results = watched(text, edits)

    assert results, done.stdout + done.stderr
    [finding, *_] = results[0]["findings"]
    assert results[0]["slug"] == slug, done.stderr
    assert fix in finding["fix"]["diff"]
    assert finding["place"]["file"].endswith("train.py")


@pytest.mark.nightly
@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("name", HEALTHY)
def test_of_a_healthy_training_nothing_is_said(watched: Watched, name: str) -> None:
    """Also where it only looks like a mistake."""
    done, results = watched(*HEALTHY[name])

    assert (done.returncode, results) == (0, []), done.stderr
