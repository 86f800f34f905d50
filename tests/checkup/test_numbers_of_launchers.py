"""Variables that contradict the launcher, and names that neither torch nor NCCL reads, in the environment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ddpdoctor.facets import Check, Instrument, NotRun
from ddpdoctor.findings import Severity
from ddpdoctor.host.facts import gather
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding


def said(slug: str, environ: dict[str, str]) -> list[Finding]:
    """Return what the probes of a check say of an environment."""
    checks: dict[str, Check] = {each.slug: each for each in load_checks()}
    found: list[Finding] = []
    for facet in checks[slug].of(Instrument.PROBE):
        try:
            found += facet.examine(facts=replace(gather(), environ=environ))
        except NotRun:
            continue
    return found


MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}


@pytest.mark.parametrize(
    ("environ", "severities"),
    [
        ({**MPI, "RANK": "0", "WORLD_SIZE": "2"}, [None]),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "RANK": "0", "WORLD_SIZE": "2"}, [None]),
        ({**SLURM, "RANK": "0", "WORLD_SIZE": "8"}, [None]),
        ({**SLURM, "RANK": "0", "WORLD_SIZE": "1"}, [Severity.NOTE]),
        ({**MPI, "RANK": "1", "WORLD_SIZE": "2"}, []),
        ({**MPI, "OMPI_COMM_WORLD_RANK": "0", "RANK": "0", "WORLD_SIZE": "2"}, []),
        ({**MPI, "RANK": "0", "WORLD_SIZE": "16"}, []),
        ({**SLURM, "RANK": "0", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "a"}, []),
        (SLURM, []),
    ],
)
def test_rank_0_of_a_process_that_its_launcher_counts_otherwise(
    environ: dict[str, str], severities: list[Severity | None]
) -> None:
    """An error where the world is the launcher's; torchrun below one, or a world of several hosts, counts by itself."""
    assert [each.severity for each in said("duplicate-rank-zero", environ)] == severities


@pytest.mark.parametrize(
    ("name", "severities"),
    [
        ("NCCL_SOCKET_IFNAMES", [None]),
        ("MASTER_ADDRESS", [Severity.NOTE]),
        ("NCCL_TIMEOUT", [Severity.NOTE]),
        ("NCCL_SOCKET_IFNAME", []),
        ("MASTER_HOST", []),
    ],
)
def test_names_that_people_expect_to_be_read(name: str, severities: list[Severity | None]) -> None:
    """A script can read a name of its own: what is not NCCL's or gloo's by its prefix is a note."""
    assert [each.severity for each in said("misspelt-variable", {name: "1"})] == severities
