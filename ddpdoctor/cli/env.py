"""``ddpdoctor env``: facts for a bug report."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ddpdoctor.host.facts import Facts


@click.command()
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def env(form: str) -> None:
    """Print what a bug report needs of this machine, without secrets."""
    from ddpdoctor.host.facts import gather
    from ddpdoctor.report.facts import facts_text

    facts = as_mapping(gather())
    click.echo(json.dumps(facts, indent=2, default=str) if form == "json" else facts_text(facts))


RELEVANT = (
    "ACCELERATE_", "CUDA", "DDP", "DEEPSPEED", "FI_", "GLOO_", "GROUP_", "HIP_", "HOROVOD_", "KMP_", "LD_", "LOCAL_",
    "MASTER_", "MKL_", "MPI", "NCCL_", "NNODES", "NODE_", "NVIDIA_", "OMP_", "OMPI_", "PET_", "PMI", "PYTHON",
    "PYTORCH_", "RANK", "RAY_", "ROCR_", "ROLE_", "SLURM_", "TORCH", "TP_", "UCX_", "WORLD_SIZE",
)  # fmt: skip


def as_mapping(facts: Facts) -> dict[str, Any]:
    """Return the facts as plain data: of the environment only what bears on training, without its secrets."""
    from ddpdoctor.redact import redact_environ

    relevant = {name: value for name, value in facts.environ.items() if name.startswith(RELEVANT)}
    named = {field.name: getattr(facts, field.name) for field in dataclasses.fields(facts) if field.name != "environ"}
    plain = {
        name: dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
        for name, value in named.items()
    }
    plain["network"].pop("listeners")  # command lines of other programs are nobody's business
    return {**plain, "environ": redact_environ(relevant)}
