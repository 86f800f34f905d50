"""Whose the keys and folders are that ``ddpdoctor inspect`` shows: PEFT's, Opacus', Megatron's, a LightningModule's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ddpdoctor.cli import cli

BARE = ("0.weight", "0.bias", "1.weight")


def named(prefix: str = "") -> dict[str, Any]:
    """Return a state dict with something before each of its keys."""
    import torch

    return {prefix + key: torch.ones(2, at + 1) for at, key in enumerate(BARE)}


def keys_of(path: Path, *steps: str) -> list[str]:
    """Return the keys that torch finds in a file."""
    import torch

    state = torch.load(path)
    for step in steps:
        state = state[step]
    return list(state)


def said(*command: str | Path) -> str:
    """Return what a command prints, in one line."""
    return " ".join(CliRunner().invoke(cli, [str(word) for word in command], catch_exceptions=False).output.split())


def test_the_prefix_of_opacus_is_named_and_taken_off(tmp_path: Path) -> None:
    """GradSampleModule holds the model as _module; beside other keys it is a layer's name."""
    import torch

    torch.save(named("_module."), tmp_path / "private.pt")
    torch.save(named("_module.") | {"scale": torch.ones(1)}, tmp_path / "own.pt")

    assert "_module. on 3 of 3 keys: Opacus (GradSampleModule)" in said("inspect", tmp_path / "private.pt")
    said("repair", tmp_path / "private.pt", "-o", tmp_path / "bare.pt")
    assert keys_of(tmp_path / "bare.pt") == [*BARE]
    assert "not before scale" in said("repair", tmp_path / "own.pt", "-o", tmp_path / "none.pt")
    assert not (tmp_path / "none.pt").exists()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("base_model.model.{}.lora_A.weight base_model.model.{}.lora_B.weight", "without its base model"),
        ("base_model.model.{}.base_layer.weight base_model.model.{}.lora_A.default.weight", "default, with the base"),
    ],
)
def test_an_adapter_is_told_and_left_as_it_is(tmp_path: Path, keys: str, words: str) -> None:
    """base_model.model. is what PEFT looks for: no repair takes it off by itself."""
    import torch

    state = {key.replace("{}", f"layers.{at}.q"): torch.ones(2, 2) for at in range(2) for key in keys.split()}
    torch.save(state, tmp_path / "adapter.pt")

    told = said("inspect", tmp_path / "adapter.pt")
    assert f"adapter of PEFT{' ' if words[0] == 'd' else ', '}{words}" in told
    assert "base_model.model. is PEFT's own" in told
    assert "no key gets another name" in said("repair", tmp_path / "adapter.pt", "-o", tmp_path / "same.pt")


def test_what_stands_before_all_keys_of_lightning_is_taken_off_at_once(tmp_path: Path) -> None:
    """The attribute of the LightningModule, and the wrapper behind it."""
    import torch

    state = {"state_dict": named("model._orig_mod."), "pytorch-lightning_version": "2.6"}
    torch.save(state, tmp_path / "last.ckpt")

    assert "--strip model._orig_mod. takes all of it off" in said("inspect", tmp_path / "last.ckpt")
    said("repair", tmp_path / "last.ckpt", "--strip", "model._orig_mod.", "-o", tmp_path / "bare.ckpt")
    assert keys_of(tmp_path / "bare.ckpt", "state_dict") == [*BARE]


def test_a_part_that_all_keys_begin_with_is_told(tmp_path: Path) -> None:
    """Nobody knows whether the model has it: a repair leaves it, and the step that takes it off is told."""
    import torch

    torch.save(named("learner.policy."), tmp_path / "rl.pt")
    torch.save(named(), tmp_path / "bare.pt")

    assert "learner.policy. on all keys; where the model has no such part" in said("inspect", tmp_path / "rl.pt")
    assert "on all keys" not in said("inspect", tmp_path / "bare.pt")


def test_inspect_tells_of_no_refusal_where_a_repair_refuses_nothing(tmp_path: Path) -> None:
    """A layer is called module, and _metadata has it beside another one."""
    import torch
    from torch import nn

    model = nn.Module()
    model.module, model.gate = nn.Linear(3, 3), nn.Linear(3, 1)
    torch.save(model.state_dict(), tmp_path / "own.pt")

    assert "refused a repair" not in said("inspect", tmp_path / "own.pt")
    assert "as _metadata has all of them" in said("repair", tmp_path / "own.pt", "-o", tmp_path / "same.pt")


def test_folders_of_megatron_are_told_and_not_repaired(tmp_path: Path) -> None:
    """A run, with the iteration that the tracker names, and the folder of that iteration."""
    import torch

    run = tmp_path / "run"
    for iteration in (100, 200):
        for rank in range(2):
            folder = run / f"iter_{iteration:07d}" / f"mp_rank_{rank:02d}"
            folder.mkdir(parents=True)
            torch.save({"model": named(), "iteration": iteration}, folder / "model_optim_rng.pt")
    (run / "latest_checkpointed_iteration.txt").write_text("100")

    told = said("inspect", run)
    assert "Megatron-LM, a run" in told
    assert "2 iterations; the latest is iter_0000100" in told
    assert "2 ranks of the model: tensor parallel size 2, pipeline parallel size 1" in told
    assert f"ddpdoctor inspect {run}/iter_0000100/mp_rank_00/model_optim_rng.pt".replace(" ", "") in told.replace(
        " ", ""
    )
    assert "--target-tensor-parallel-size 1" in told
    assert "Megatron-LM, an iteration" in said("inspect", run / "iter_0000200")
    assert "cannot be repaired" in said("repair", run, "-o", tmp_path / "other")
