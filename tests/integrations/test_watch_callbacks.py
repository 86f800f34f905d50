"""The watch as a callback of a framework: switched on by its constructor, explains, and switched off at the end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import COLD_TORCHRUN, PATIENCE, Script

from ddpdoctor.callbacks import needs, parts_of
from ddpdoctor.watch.rank.frameworks.frameworks import Frameworks

MODEL = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
from ddpdoctor.watch.rank.install import attached

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = torch.nn.Linear(8, 2), torch.nn.Linear(8, 2)

    def forward(self, x, labels=None):
        out = self.used(x) if "unused" in sys.argv else self.used(x) + self.spare(x)
        return {"loss": out.square().mean()}
"""
LIGHTNING = (
    MODEL
    + """
from lightning.pytorch import LightningModule, Trainer
from ddpdoctor.callbacks.lightning import Watch

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, index):
        return self.net(batch[0])["loss"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

if __name__ == "__main__":
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, enable_progress_bar=False, logger=False,
        enable_checkpointing=False, callbacks=[Watch(report=sys.argv[1])],
    )
    trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4, shuffle=True))
    sys.stdout.write(f"rank {trainer.global_rank} watched {attached() is not None}\\n")
"""
)
TRANSFORMERS = (
    MODEL
    + """
from transformers import Trainer, TrainingArguments
from ddpdoctor.callbacks.transformers import Watch

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return {"x": torch.randn(8), "labels": torch.zeros(2)}

if __name__ == "__main__":
    arguments = TrainingArguments(
        output_dir=sys.argv[1] + ".out", num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True, report_to=[],
        save_strategy="no", disable_tqdm=True, ddp_find_unused_parameters=False,
    )
    trainer = Trainer(model=Net(), args=arguments, train_dataset=Data(), callbacks=[Watch(report=sys.argv[1])])
    trainer.train()
    sys.stdout.write(f"rank {arguments.process_index} watched {attached() is not None}\\n")
"""
)
FABRIC = (
    MODEL
    + """
from lightning.fabric import Fabric
from ddpdoctor.callbacks.fabric import Watch

if __name__ == "__main__":
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp", callbacks=[Watch(report=sys.argv[1])])
    fabric.launch()
    model = Net()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4, shuffle=True))
    for (inputs,) in loader:
        optimizer.zero_grad()
        fabric.backward(model(inputs)["loss"])
        optimizer.step()
    fabric.call("on_train_end")
    sys.stdout.write(f"rank {fabric.global_rank} watched {attached() is not None}\\n")
"""
)
ACCELERATE = (
    MODEL
    + """
from accelerate import Accelerator
from ddpdoctor.callbacks.accelerate import Watch

if __name__ == "__main__":
    accelerator = Accelerator(cpu=True, log_with=Watch(report=sys.argv[1]))
    accelerator.init_trackers("training")
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (inputs,) in loader:
        optimizer.zero_grad()
        accelerator.backward(model(inputs)["loss"])
        optimizer.step()
    rank = accelerator.process_index
    model, optimizer, loader = accelerator.free_memory(model, optimizer, loader)
    accelerator.end_training()
    sys.stdout.write(f"rank {rank} watched {attached() is not None}\\n")
"""
)
Train = Callable[..., "subprocess.CompletedProcess[str]"]
CASES = [
    pytest.param(
        name, text, marks=[*marks, pytest.mark.skipif(find_spec(package) is None, reason=f"needs {package}")], id=name
    )
    for name, package, text, marks in (
        ("lightning", "lightning", LIGHTNING, ()),
        ("fabric", "lightning", FABRIC, (pytest.mark.nightly,)),
        ("accelerate", "accelerate", ACCELERATE, (pytest.mark.nightly,)),
        ("transformers", "transformers", TRANSFORMERS, (pytest.mark.nightly,)),
    )
]


@pytest.fixture
def train(python: str, script: Script, tmp_path: Path) -> Train:
    """Return what runs a training on two ranks, which Lightning starts by itself; its report is report.json."""

    def run(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Ranks without a variable of their job know each other by their parent, which that of a warm rank is not.
        launcher = (python,) if text in {LIGHTNING, FABRIC} else COLD_TORCHRUN
        command = (*launcher, script(text), str(tmp_path / "report.json"), *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=PATIENCE)

    return run


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize(("name", "text"), CASES)
class TestCallbacks:
    """One line in the user's script, with the real framework on two ranks."""

    def test_a_healthy_training_is_let_alone(self, train: Train, name: str, text: str) -> None:
        """It trains, nothing is said, and after it torch is as before, or else the program ends."""
        done = train(text)

        assert done.returncode == 0, f"{name}: {done.stderr}"
        to_the_end = text == ACCELERATE  # a tracker is ended on one rank alone
        assert f"watched {to_the_end}" in done.stdout
        assert f"watched {not to_the_end}" not in done.stdout
        assert "ddpdoctor:" not in done.stderr

    def test_an_error_is_explained_in_its_traceback_and_in_the_report(
        self, train: Train, tmp_path: Path, name: str, text: str
    ) -> None:
        """Parameters by their names, also where the framework has put its own message in torch's place."""
        done = train(text, "unused")
        results = json.loads((tmp_path / "report.json").read_text())["results"]
        [finding] = next(each["findings"] for each in results if each["slug"] == "unused-parameters")

        assert done.returncode == 1
        assert "ddpdoctor: DDP501 unused-parameters: 2 parameters got no gradient" in done.stderr
        assert "spare.weight" in finding["message"], name
        assert "find_unused_parameters" in finding["fix"]["diff"]
        assert "DDP(model)" not in finding["fix"]["diff"]


class TestVersions:
    """A framework that is missing, or older than what its module uses, is told in one line."""

    def test_one_that_is_missing(self) -> None:
        """The name to install, and from which version on."""
        with pytest.raises(
            ImportError, match=r"^ddpdoctor.callbacks needs no-such-framework 2.0 or newer, and it is not"
        ):
            needs("no-such-framework", (2, 0))

    def test_one_that_is_too_old(self) -> None:
        """The version that is there."""
        found = re.escape(version("torch"))
        with pytest.raises(
            ImportError, match=rf"^ddpdoctor.callbacks needs torch 99.1 or newer: {found} is installed$"
        ):
            needs("torch", (99, 1))

    def test_one_that_will_do_under_another_name(self) -> None:
        """The first name that is installed counts."""
        needs("no-such-framework", (2, 0), "torch")


def test_a_framework_that_is_too_new_is_told_in_one_line() -> None:
    """What its module here imports has gone from it: the name, and the version that is installed."""
    found = version("torch")

    with (
        pytest.raises(ImportError, match=rf"^ddpdoctor.callbacks does not know torch {re.escape(found)}: .*Callback"),
        parts_of("torch"),
    ):
        from torch.nn import Callback  # type: ignore[attr-defined]  # noqa: F401 - there is none


def test_a_framework_that_is_not_loaded_is_not_hooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No module of it is there: nothing is replaced, and nothing fails."""
    for name in [each for each in sys.modules if each.partition(".")[0] in {"lightning", "transformers", "accelerate"}]:
        monkeypatch.delitem(sys.modules, name)
    recorder = SimpleNamespace(late=[])
    frameworks = Frameworks(recorder)

    frameworks.hook()
    for each in recorder.late:
        each.undo()

    assert {name for name in frameworks.hooked if not name.startswith("torch.")} == set()
