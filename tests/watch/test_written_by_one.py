"""A line that writes a parameter on one rank alone is found in the source, and what only looks like it is not."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from ddpdoctor.checks.model.replicas._written import written_by_one

HEAD = """
import torch
import torch.distributed as dist
rank = dist.get_rank()
def halve(layer):
    layer.weight.mul_(0.5)
def train(model, ema, optimizer, batches):
    for number, batch in enumerate(batches):
        model(batch).backward()
        optimizer.step()
"""
FAULTS = {
    "clamped": "if rank == 0:\n    model.module.head.weight.data.clamp_(-1, 1)",
    "each parameter, by its data": "if dist.get_rank() == 0:\n    for p in model.parameters():\n        p.data *= 0.9",
    "a function that writes": "if rank == 0:\n    halve(model.module.head)",
    "initialised anew": "if rank == 0:\n    torch.nn.init.zeros_(model.module.head.weight)",
    "rows": "if rank == 0:\n    model.module.head.weight[3:] = 0",
}
HEALTHY = {
    "on all ranks": "model.module.head.weight.data.clamp_(-1, 1)",
    "an average of the weights": "if rank == 0:\n    ema.head.weight.lerp_(model.module.head.weight, 0.1)",
    "given to all": "if rank == 0:\n    halve(model.module.head)\ndist.broadcast(model.module.head.weight.data, 0)",
    "another parameter": "if rank == 0:\n    model.module.head.bias.data.zero_()",
    "a gradient": "if rank == 0:\n    model.module.head.weight.grad.mul_(0.5)",
    "a table of the user's own": "if rank == 0:\n    table['weight'] = model.module.head.weight.norm().item()",
    "two places": "if rank == 0:\n    halve(model.module.head)\nif rank == 1:\n    model.module.head.weight.mul_(0)",
    "another layer": "if rank == 0:\n    model.module.body.weight.data.clamp_(-1, 1)",
    "a model of rank 0": "if rank == 0:\n    probe = make()\n    probe.weight.data.zero_()",
}


def _file(lines: str, folder: Path) -> str:
    path = folder / "train.py"
    indented = "".join(f"        {line}\n" for line in dedent(lines).splitlines())
    path.write_text(HEAD + indented, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("lines", FAULTS.values(), ids=FAULTS)
def test_the_line_is_found(lines: str, tmp_path: Path) -> None:
    """It is the one that writes, with the condition that one rank alone meets."""
    found = written_by_one(_file(lines, tmp_path), "head.weight")

    assert found is not None
    assert found.guard == f"under `{lines.partition(':')[0]}`"


@pytest.mark.parametrize("lines", HEALTHY.values(), ids=HEALTHY)
def test_no_other_line_is_named(lines: str, tmp_path: Path) -> None:
    """Copies, other parameters, and what is given to all ranks make no replicas differ."""
    assert written_by_one(_file(lines, tmp_path), "head.weight") is None


def test_a_line_before_the_training_is_none(tmp_path: Path) -> None:
    """DDP has given all ranks what rank 0 wrote before it was wrapped."""
    path = tmp_path / "train.py"
    path.write_text(f"{HEAD}if rank == 0:\n    halve(model.head)\n", encoding="utf-8")

    assert written_by_one(str(path), "head.weight") is None
