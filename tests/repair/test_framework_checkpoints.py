"""What frameworks save: folders are recognised by what stands in them, and become what safetensors or torch reads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Run

from ddpdoctor import checkpoint
from ddpdoctor.checkpoint import CheckpointFile, Format, inspect
from ddpdoctor.facets import BadTarget

# Names as DeepSpeed 0.19, Accelerate 1.15 and the Trainer of transformers 5.23 wrote them on two ranks.
ZERO_1 = (
    "latest zero_to_fp32.py global_step8/mp_rank_00_model_states.pt"
    " global_step8/zero_pp_rank_0_mp_rank_00_optim_states.pt global_step8/zero_pp_rank_1_mp_rank_00_optim_states.pt"
    " global_step16/mp_rank_00_model_states.pt global_step16/zero_pp_rank_0_mp_rank_00_optim_states.pt"
    " global_step16/zero_pp_rank_1_mp_rank_00_optim_states.pt"
)
ZERO_3 = (
    "latest zero_to_fp32.py"
    " global_step16/zero_pp_rank_0_mp_rank_00_model_states.pt global_step16/zero_pp_rank_1_mp_rank_00_model_states.pt"
    " global_step16/zero_pp_rank_0_mp_rank_00_optim_states.pt global_step16/zero_pp_rank_1_mp_rank_00_optim_states.pt"
)
BF16 = (
    "global_step16/mp_rank_00_model_states.pt global_step16/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
    " global_step16/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
)
LIGHTNING = (
    "latest zero_to_fp32.py checkpoint/mp_rank_00_model_states.pt"
    " checkpoint/zero_pp_rank_0_mp_rank_00_optim_states.pt checkpoint/zero_pp_rank_1_mp_rank_00_optim_states.pt"
)
ACCELERATE = "model.safetensors optimizer.bin scheduler.bin sampler.bin random_states_0.pkl random_states_1.pkl"
ACCELERATE_FSDP = "pytorch_model_fsdp_0/.metadata pytorch_model_fsdp_0/__0_0.distcp random_states_0.pkl"
TRAINER = "config.json model.safetensors optimizer.pt rng_state_0.pth rng_state_1.pth trainer_state.json"
RAY = "checkpoint_manager_snapshot.json checkpoint_2026-01-05_10-00-00/a.pt checkpoint_2026-01-05_11-00-00/b.pt"

MERGES = "lightning.fabric.utilities.consolidate_checkpoint"
Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Return a function that makes a folder with files of these names."""

    def make(names: str, latest: str = "global_step16") -> Path:
        folder = tmp_path / "saved"
        for name in names.split():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(latest if name == "latest" else "{}" if name.endswith(".json") else "")
        return folder

    return make


def told(file: CheckpointFile) -> dict[str, str]:
    """Return the notes, commands as they are pasted."""
    return {note.label: note.text or " ".join(note.command) for note in file.notes}


class TestFolders:
    """A folder of each framework: what it is, who saved it, and what makes whole weights of it."""

    @pytest.mark.parametrize("names", [ZERO_1, BF16])
    def test_of_zero_1_and_2(self, made: Made, names: str) -> None:
        """The weights are whole in a file; the latest tag is meant; its own script where it lies beside."""
        folder = made(names)
        file = inspect(folder)
        notes = told(file)
        tool = f"{folder}/zero_to_fp32.py" if "zero_to_fp32" in names else "-m deepspeed.utils.zero_to_fp32"

        assert (file.format, file.label, file.damage) == (Format.FOLDER, "DeepSpeed", "")
        assert notes["saved by"] == "2 data-parallel ranks, ZeRO stage 1 or 2; tag global_step16"
        assert notes["weights"] == f"ddpdoctor inspect {folder}/global_step16/mp_rank_00_model_states.pt"
        assert notes["whole"] == f"python {tool} {folder} {folder}.whole --tag global_step16"
        assert "ds_to_universal" in notes["any ranks"]

    def test_of_zero_3(self, made: Made) -> None:
        """No file has whole weights; the folder of a tag is told like the one around it."""
        folder = made(ZERO_3)
        notes = told(inspect(folder))

        assert "ZeRO stage 3" in notes["saved by"]
        assert "weights" not in notes
        assert told(inspect(folder / "global_step16")) == notes

    def test_of_lightnings_strategy(self, made: Made) -> None:
        """Lightning's own function takes its prefix off as well."""
        assert "convert_zero_checkpoint_to_fp32_state_dict" in told(inspect(made(LIGHTNING, "checkpoint")))["whole"]

    @pytest.mark.parametrize(
        ("names", "latest", "damage"),
        [
            (ZERO_1, "global_step99", "latest names global_step99"),
            (ZERO_3.replace("rank_0_mp_rank_00_optim", "rank_2_mp_rank_00_optim"), "global_step16", "part of rank 0"),
        ],
    )
    def test_that_is_not_whole(self, made: Made, ddpdoctor: Run, names: str, latest: str, damage: str) -> None:
        """A tag that is not there, a rank whose host saved to a disk of its own: said, with exit status 2."""
        done = ddpdoctor("inspect", str(made(names, latest)))

        assert done.returncode == 2
        assert damage in done.stdout

    def test_of_accelerate(self, made: Made) -> None:
        """As many processes as left the states of their random generators."""
        folder = made(ACCELERATE)
        file = inspect(folder)
        assert file.label == "Accelerate"
        assert told(file)["saved by"].startswith("2 processes")
        assert told(file)["weights"] == f"ddpdoctor inspect {folder}/model.safetensors"

    def test_of_accelerate_with_fsdp(self, made: Made) -> None:
        """Shards are merged by Accelerate's own command."""
        folder = made(ACCELERATE_FSDP)
        whole = f"accelerate merge-weights {folder}/pytorch_model_fsdp_0 {folder}.whole"
        assert told(inspect(folder))["whole"] == whole

    @pytest.mark.parametrize(
        ("names", "label", "weights"),
        [(TRAINER, "transformers Trainer", "model.safetensors"), (RAY, "Ray Train, a run", "11-00-00")],
    )
    def test_of_others(self, made: Made, names: str, label: str, weights: str) -> None:
        """Where the weights are is told; of several checkpoints the last."""
        file = inspect(made(names))
        assert file.label == label
        assert told(file)["weights"].endswith(weights)

    @pytest.mark.parametrize("partitions", [2, [1, 2]])
    def test_of_zero_without_the_last_ranks_part(self, made: Made, partitions: int | list[int]) -> None:
        """How many parts there were, each part says: of those that are there none has a gap before it."""
        import torch

        folder = made(ZERO_1.replace("global_step16/zero_pp_rank_1", "global_step8/zero_pp_rank_2"))
        state = {"optimizer_state_dict": {"partition_count": partitions}}
        torch.save(state, folder / "global_step16" / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
        file = inspect(folder)
        assert "part of rank 1 is not there" in file.damage
        assert told(file)["saved by"].startswith("2 data-parallel ranks")

    def test_of_zero_as_anybody_can_load_it(self, made: Made) -> None:
        """What ds_to_universal wrote has no parts of ranks."""
        folder = made(
            "global_step16_universal/mp_rank_00_model_states.pt global_step16_universal/zero/a.weight/fp32.pt"
        )
        assert "any number of ranks" in told(inspect(folder))["saved by"]

    @pytest.mark.parametrize(
        ("names", "missing"),
        [
            (ACCELERATE.replace("states_1", "states_2"), "random_states_1.pkl"),
            (TRAINER.replace("state_1", "state_2"), "rng_state_1.pth"),
        ],
    )
    def test_without_the_draws_of_a_process(self, made: Made, names: str, missing: str) -> None:
        """A gap before the last: it was saved by three."""
        notes = told(inspect(made(names)))
        assert notes["saved by"].startswith("3 processes")
        assert missing in notes["missing"]

    def test_of_a_trainer_that_was_cut_off(self, made: Made) -> None:
        """Its state is no whole JSON: to resume ends with an error of the JSON reader."""
        folder = made(TRAINER)
        (folder / "trainer_state.json").write_text('{"global_step": 8,')
        assert inspect(folder).damage.startswith("trainer_state.json is not whole")

    def test_of_dcp_that_was_cut_off(self, made: Made) -> None:
        """The ranks' files are there, and what is written last is not."""
        with pytest.raises(BadTarget, match=r"has the files of ranks \(__0_0.distcp, __1_0.distcp\) and no .metadata"):
            inspect(made("__0_0.distcp __1_0.distcp"))

    @pytest.mark.parametrize("names", ["notes.txt", "a.pt b.pt", "random_states.txt checkpoint_1/x"])
    def test_of_nobody_is_refused_as_before(self, made: Made, names: str) -> None:
        """What no framework made is no checkpoint for its name alone."""
        with pytest.raises(BadTarget, match="is a directory without"):
            inspect(made(names))

    @pytest.mark.parametrize("name", ["", "global_step16/zero_pp_rank_0_mp_rank_00_model_states.pt"])
    def test_is_not_repaired_and_what_converts_it_is_told(self, made: Made, tmp_path: Path, name: str) -> None:
        """The placeholders of ZeRO-3 would be renamed to nobody's use."""
        path = made(ZERO_3) / name
        if name:
            import torch

            torch.save({"module": {"module.weight": torch.empty(0)}}, path)
        with pytest.raises(BadTarget, match="ddpdoctor inspect gives the command"):
            checkpoint.repair(path, tmp_path / "out.pt")

    @pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
    def test_of_dcp_names_what_makes_one_file(self, tmp_path: Path) -> None:
        """The command is torch's own, which is run here."""
        import torch
        from torch.distributed.checkpoint import format_utils, state_dict_saver

        state_dict_saver.save({"weight": torch.ones(2)}, checkpoint_id=tmp_path / "saved")
        command = told(inspect(tmp_path / "saved"))["one file"].split()

        assert command[:4] == ["python", "-m", format_utils.__name__, "dcp_to_torch"]
        format_utils.dcp_to_torch_save(*command[4:])
        assert torch.load(tmp_path / "saved.pt", weights_only=True)["weight"].tolist() == [1, 1]

    @pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
    def test_of_lightnings_dcp_names_lightnings_command(self, tmp_path: Path) -> None:
        """Which puts what stands in its own file beside the weights; it is run here where Lightning is installed."""
        import torch
        from torch.distributed.checkpoint import state_dict_saver

        saved = tmp_path / "saved.ckpt"
        state_dict_saver.save({"state_dict": {"weight": torch.ones(2)}}, checkpoint_id=saved)
        torch.save({"epoch": 2}, saved / "meta.pt")
        command = told(inspect(saved))["one file"].split()
        assert command[2:] == [MERGES, str(saved), "--output_file", f"{saved}.whole"]
        pytest.importorskip("lightning")
        subprocess.run([sys.executable, *command[1:]], check=True, timeout=100, capture_output=True)
        assert torch.load(f"{saved}.whole", weights_only=True)["epoch"] == 2


def state(prefix: str) -> dict[str, Any]:
    """Return several dtypes, a tensor without elements, one of no dimension, and a slice of a larger storage."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3), nn.Linear(3, 3).bfloat16())
    model.register_buffer("none", torch.empty(0, 4, dtype=torch.int8))
    found = {f"{prefix}{key}": value for key, value in model.state_dict().items()}
    return {**found, f"{prefix}part": torch.arange(1000.0)[10:14]}


def refused(name: str) -> Any:
    """Return what the format has no place for."""
    import torch

    tied = torch.ones(2)
    values: dict[str, Any] = {
        "more": {"model": {"a.weight": torch.ones(2)}, "epoch": 3},
        "a number": {"a.weight": torch.ones(2), "epoch": 3},
        "tied": {"a.weight": tied, "b.weight": tied},
        "a view": {"a.weight": torch.ones(2, 3).T},
        "sparse": {"a.weight": torch.ones(2).to_sparse()},
    }
    return values[name]


class TestSafetensors:
    """A file of torch.save becomes a safetensors file, in the step that renames."""

    @pytest.mark.parametrize("prefix", ["", "module."])
    def test_has_the_same_tensors(self, tmp_path: Path, prefix: str) -> None:
        """Bit by bit, under bare names; a slice takes no more than it is."""
        import torch
        from safetensors.torch import load_file

        torch.save(before := state(prefix), tmp_path / "last.pt")
        checkpoint.repair(tmp_path / "last.pt", tmp_path / "last.safetensors")
        found = load_file(tmp_path / "last.safetensors")

        keys = [key.removeprefix(prefix) for key in before]
        assert list(inspect(tmp_path / "last.safetensors").state_dicts[0].keys) == keys
        for key, value in before.items():
            other = found[key.removeprefix(prefix)]
            assert (other.dtype, other.shape) == (value.dtype, value.shape)
            assert torch.equal(other, value)

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("more", "holds model, epoch"),
            ("a number", "epoch is no tensor"),
            ("tied", "a.weight and b.weight share memory"),
            ("a view", "not in their order"),
            ("sparse", "stored in another way"),
        ],
    )
    def test_what_has_no_place_in_it_is_refused(self, tmp_path: Path, name: str, reason: str) -> None:
        """With the reason, and nothing is written."""
        import torch

        torch.save(refused(name), tmp_path / "last.pt")
        with pytest.raises(BadTarget, match=reason):
            checkpoint.repair(tmp_path / "last.pt", tmp_path / "last.safetensors")
        assert not (tmp_path / "last.safetensors").exists()
