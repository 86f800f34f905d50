from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ddpdoctor.lint.command import found_in_command
from ddpdoctor.registry import load_checks

CHECKS = load_checks()
WRONG = {
    "torchrun --standalone --nnodes=2 --nproc_per_node=2 train.py": {"DDP468"},
    "torchrun train.py --nproc_per_node=2": {"DDP466"},
    "torchrun --nproc_per_nod3=2 train.py": {"DDP491"},
    "mpirun -np 4 torchrun --nproc_per_node=4 train.py": {"DDP465"},
    "srun -N 2 --ntasks-per-node=4 torchrun --nnodes=2 --nproc_per_node=4 train.py": {"DDP465", "DDP391"},
    "bash -c 'CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=4 train.py'": {"DDP212"},
    "torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint='$MASTER_ADDR:29500' train.py": {"DDP493"},
    "torchrun --nnodes= --nproc_per_node=2 train.py": {"DDP494"},
}
RIGHT = (
    "torchrun --standalone --nproc_per_node=2 train.py --epochs 2",
    "torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=localhost:29500 train.py",  # two on one host, say
    "torchrun --nnodes=2 --node_rank=1 --master_addr=10.0.0.1 --nproc_per_node=2 train.py",
    "srun -N 2 --ntasks-per-node=1 torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=n1:29500 train.py",
    """python -c 'print("torchrun --standalone --nnodes=2 train.py")'""",
    "torchrun --standalone --nproc_per_node=2 train.py --name 'costs $5; rm'",
)


class TestCommand:
    """What is wrong in a command that is given to `run` and `check`."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let a script stand in the working folder."""
        (tmp_path / "train.py").write_text("import torch\n")
        monkeypatch.chdir(tmp_path)

    @pytest.mark.parametrize(("command", "codes"), WRONG.items())
    def test_a_wrong_command_is_found_as_in_a_launch_script(self, command: str, codes: set[str]) -> None:
        """What stands in one command is enough; the finding has no place in a file."""
        found = [*found_in_command(shlex.split(command), CHECKS)]

        assert {each.check.code for each in found} == codes
        assert all(each.finding.place.file is None for each in found)

    @pytest.mark.parametrize("command", RIGHT)
    def test_a_right_command_is_not(self, command: str) -> None:
        """Nor is one beside which another can stand on the same host."""
        assert [*found_in_command(shlex.split(command), CHECKS)] == []

    @pytest.mark.parametrize("command", ["bash run.sh", "sh -e run.sh --fast", "./run.sh"])
    def test_the_script_that_a_command_starts_is_looked_at(self, command: str, tmp_path: Path) -> None:
        """A finding stands in its file; a batch script is Slurm's, and a script that is no text is passed over."""
        text = '#!/bin/bash\nARGS=(--standalone)\ntorchrun "${ARGS[@]}" \\\n    train.py --nproc_per_node=2\n'
        (tmp_path / "run.sh").write_text(text)
        (found,) = found_in_command(shlex.split(command), CHECKS)

        assert found.check.code == "DDP466"
        assert found.finding.place.file is not None
        assert (Path(found.finding.place.file).name, found.finding.place.line) == ("run.sh", 4)
        (tmp_path / "run.sh").write_text(text.replace("\n", "\n#SBATCH --nodes=1\n", 1))
        assert [*found_in_command(shlex.split(command), CHECKS)] == []
        (tmp_path / "run.sh").write_bytes(b"\xff\xfe torchrun")
        assert [*found_in_command(shlex.split(command), CHECKS)] == []
        (tmp_path / "run.sh").unlink()
        assert [*found_in_command(shlex.split(command), CHECKS)] == []
