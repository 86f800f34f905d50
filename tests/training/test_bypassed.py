"""How a line calls the wrapper, where it has called what is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.checks.model.gradients.bypassed._bypassed import called_past
from ddpdoctor.frameworks import IGNITE
from ddpdoctor.watch.events import Site

HEAD = "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"


@pytest.mark.parametrize(
    ("made", "diff"),
    [
        ("model = DDP(net)\nfast = torch.compile(model.module)", "-fast = torch.compile(model.module)"),
        ("fast = torch.compile(net)\nmodel = DDP(net)", "-fast = torch.compile(net)"),
    ],
)
def test_what_was_compiled_is_compiled_with_its_wrapper(tmp_path: Path, made: str, diff: str) -> None:
    """The line calls what torch.compile has returned for the bare model."""
    (path := tmp_path / "train.py").write_text(f"{HEAD}{made}\nloss = criterion(fast(x), y)\n")
    fix = called_past(Site(str(path), 5, "<module>"), None)

    assert fix.diff == f"{diff}\n+fast = torch.compile(model)"


def test_a_compiled_step_is_no_model(tmp_path: Path) -> None:
    """Of a function that was compiled nobody knows which model it calls: the plain advice, or the framework's."""
    (path := tmp_path / "train.py").write_text(f"{HEAD}model = DDP(net)\nfast = torch.compile(step)\nfast(x, y)\n")

    assert "torch.compile" not in called_past(Site(str(path), 5, "<module>"), None).diff
    assert "create_supervised_trainer(model," in called_past(Site(str(path), 5, "<module>"), IGNITE).diff
