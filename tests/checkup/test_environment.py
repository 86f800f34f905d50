from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers import CHECKS
from hypothesis import given, strategies as st

from ddpdoctor.facets import Check, Instrument, NotRun
from ddpdoctor.findings import Finding, Severity
from ddpdoctor.host.facts import Facts, gather
from ddpdoctor.host.gpus import Gpu
from ddpdoctor.host.variables import KNOWN, edits, meant, misspelt
from ddpdoctor.host.versions import Library

# Of clusters, clouds, continuous integration, compilers and desktops: nobody misspelt these.
OTHERS = """
PATH HOME LANG LC_ALL TERM SHELL USER HOSTNAME HOST PORT PWD TMPDIR DISPLAY EDITOR PAGER KEYBOARD MANPATH CONDA_PREFIX
VIRTUAL_ENV PYTHONPATH LD_LIBRARY_PATH LD_PRELOAD RANK_TABLE_FILE RANKS WORLD MASTER MASTER_KEY MASTER_IP MASTER_URL
MASTER_HOST MASTER_NODE MASTER_PORTS LOCAL_ADDR LOCAL_SIZE NODE_NAME NODE_IP NUM_NODES NODE_COUNT GPU_COUNT NGPUS
NPROC_PER_NODE SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_NODELIST SLURM_JOB_ID OMPI_COMM_WORLD_RANK
OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK PMI_RANK PMI_SIZE PMIX_RANK MPI_LOCALRANKID MV2_COMM_WORLD_RANK
KUBERNETES_SERVICE_HOST KUBERNETES_PORT CI GITHUB_TOKEN JENKINS_URL AWS_REGION AZUREML_NODE_COUNT SM_HOSTS SM_NUM_GPUS
NCCL_VERSION NCCL_HOME NCCL_ROOT NCCL_DIR NCCL_LIB_DIR NCCL_INCLUDE_DIR NV_LIBNCCL_PACKAGE CUDA_VERSION CUDA_ROOT
CUDA_ARCH_LIST CUDA_CACHE_PATH CUDA_PATH CUDACXX CUDNN_VERSION CUDA_VISIBLE_DEVICES_ORIG NVIDIA_REQUIRE_CUDA
NVIDIA_PRODUCT_NAME TORCH_HOME TORCH_CUDA_ARCH_LIST TORCH_EXTENSIONS_DIR TORCHINDUCTOR_CACHE_DIR TORCH_COMPILE_DEBUG
PYTORCH_VERSION PYTORCH_HOME OPENBLAS_NUM_THREADS GOTO_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS
OMP_PROC_BIND OMP_PLACES OMP_SCHEDULE OMP_DYNAMIC KMP_AFFINITY KMP_BLOCKTIME MKL_DYNAMIC HF_HOME
TOKENIZERS_PARALLELISM WANDB_MODE ACCELERATE_USE_FSDP DS_SKIP_CUDA_CHECK RAY_ADDRESS HOROVOD_RANK GLOO_TIMEOUT
UCX_NET_DEVICES FI_PROVIDER ROLE ROLES GROUP GROUPS GROUP_NAME GROUP_ID NODES NNODE LOCAL_BANK
""".split()


def _run(checks: dict[str, Check], slug: str, **inputs: Any) -> list[Finding]:
    found: list[Finding] = []
    for facet in checks[slug].of(Instrument.PROBE):
        if "cluster" in facet.needs and "cluster" not in inputs:
            continue  # what several hosts see together
        try:
            found += facet.examine(**{need: inputs[need] for need in facet.needs})
        except NotRun:
            continue
    return found


@pytest.mark.parametrize("name", [*OTHERS, *sorted(KNOWN)])
def test_no_alarm_on_names_that_nobody_misspelt(name: str) -> None:
    """Variables of other programs, and the known ones themselves."""
    assert meant(name) is None


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("CUDA_VISINLE_DEVICES", "CUDA_VISIBLE_DEVICES"), ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("MASTER_ADR", "MASTER_ADDR"), ("MASTER_ADDR ", "MASTER_ADDR"), ("MASTER_PROT", "MASTER_PORT"),
        ("WORLDSIZE", "WORLD_SIZE"), ("LOCAL_RNAK", "LOCAL_RANK"), ("NCCL_SOCKET_IFNMAE", "NCCL_SOCKET_IFNAME"),
        ("GLOO_SOCKET_IFNAM", "GLOO_SOCKET_IFNAME"), ("master_addr", "MASTER_ADDR"), ("NCCL-DEBUG", "NCCL_DEBUG"),
        ("NCCL_P2P_DISABLED", "NCCL_P2P_DISABLE"), ("TORCH_DISTRIBUTED_DEBG", "TORCH_DISTRIBUTED_DEBUG"),
    ],
)  # fmt: skip
def test_slips_of_the_fingers_are_recognised(name: str, known: str) -> None:
    """One slip, two in long names, blanks and lower case."""
    assert meant(name) == known


@given(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1, max_size=24))
def test_a_random_name_is_no_misspelling(name: str) -> None:
    """What is called a misspelling is at most two edits away from what was meant."""
    known = meant(name)

    assert known is None or edits(name, known) <= 2


@given(st.text(max_size=8), st.text(max_size=8))
def test_edits_is_a_distance(one: str, other: str) -> None:
    """Zero for equals only, symmetric, at most the longer length, and one for a swap of neighbours."""
    assert (edits(one, other) == 0) == (one == other)
    assert edits(one, other) == edits(other, one) <= max(len(one), len(other))
    assert edits("ab" + one, "ba" + one) == 1


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=5), max_size=5))
def test_any_environment_can_be_read(environ: dict[str, str]) -> None:
    """No name makes it fail."""
    assert set(misspelt(environ)) <= set(environ)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.text(max_size=6) | st.integers(-3, 70000).map(str)
            for name in (
                "RANK",
                "WORLD_SIZE",
                "LOCAL_RANK",
                "LOCAL_WORLD_SIZE",
                "MASTER_PORT",
                "MASTER_ADDR",
                "OMP_NUM_THREADS",
            )
        },
    )
)
def test_any_rendezvous_gives_findings_not_crashes(environ: dict[str, str]) -> None:
    """Whatever the values are, every check of the environment that needs no job ends."""
    world = replace(FACTS, environ=environ)
    for check in CHECKS:
        probes = check.of(Instrument.PROBE)
        if probes and check.area == "environment" and all({*facet.needs} <= {"facts", "gpus"} for facet in probes):
            _run(BY_SLUG, check.slug, facts=world, gpus=world.gpus)


FACTS = gather({})
BY_SLUG = {check.slug: check for check in CHECKS}


@given(st.integers(1, 64), st.data())
def test_what_a_launcher_sets_is_never_malformed(world: int, data: st.DataObject) -> None:
    """Ranks that count as torchrun counts them raise no alarm."""
    rank = data.draw(st.integers(0, world - 1))
    environ = {
        "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }  # fmt: skip
    facts = replace(FACTS, environ=environ)

    assert _run(BY_SLUG, "rendezvous-variable-malformed", facts=facts) == []
    assert _run(BY_SLUG, "rendezvous-variable-missing", facts=facts) == []


def test_settings_for_torchrun_alone_are_no_fault(checks: dict[str, Check], facts: Facts) -> None:
    """MASTER_ADDR and WORLD_SIZE without RANK are what images and scripts of clusters set."""
    world = replace(facts, environ={"MASTER_ADDR": "node0", "MASTER_PORT": "29500", "WORLD_SIZE": "8"})

    assert _run(checks, "rendezvous-variable-missing", facts=world) == []


def test_hiding_all_gpus_on_purpose_is_no_fault(checks: dict[str, Check], facts: Facts) -> None:
    """CUDA_VISIBLE_DEVICES empty or -1 is how people train on the CPU."""
    for setting in ("", "-1"):
        world = replace(facts, environ={"CUDA_VISIBLE_DEVICES": setting})

        assert _run(checks, "cuda-visible-devices-invalid", facts=world) == []


ENTRIES = st.sampled_from(["0", "1", " 2", "3 ", "+1", "01", "-1", "", "1gpu", "all", "cuda:0", "0;1", "0 1", '"0'])


@given(st.lists(ENTRIES, min_size=1, max_size=4).map(",".join))
def test_lists_of_gpus_are_read_as_torch_reads_them(setting: str) -> None:
    """Nothing is said of a list that torch reads whole, and something of each other one."""
    import torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", setting)
        read = torch.cuda._parse_visible_devices()  # type: ignore[no-untyped-call,unused-ignore]
    meant = [entry.strip() for entry in setting.split(",") if entry.strip() not in ("", "-1")]
    whole = [int(entry) for entry in meant if entry.removeprefix("+").isdecimal()]
    found = _run(
        BY_SLUG, "cuda-visible-devices-invalid", facts=replace(FACTS, environ={"CUDA_VISIBLE_DEVICES": setting})
    )

    if not found:
        assert (read, len(whole)) == (whole, len(meant))
    elif read == whole and len(whole) == len(meant):
        assert setting.startswith(("-1", ",", " ,"))  # hides all, or only blanks


@pytest.mark.parametrize("setting", ["0,1,", "0, 1", "0,-1", "0,1,-1", "GPU-ab12,GPU-cd34", "MIG-GPU-ab/1/0"])
def test_no_alarm_on_lists_that_work(checks: dict[str, Check], facts: Facts, setting: str) -> None:
    """Blanks, an end of the list, and beginnings of UUIDs."""
    world = replace(facts, environ={"CUDA_VISIBLE_DEVICES": setting})

    assert _run(checks, "cuda-visible-devices-invalid", facts=world) == []


@pytest.mark.parametrize(
    ("slug", "environ", "severities"),
    [
        ("rendezvous-variable-missing", {"RANK": "0"}, [Severity.NOTE]),
        ("rendezvous-variable-missing", {"RANK": "0", "WORLD_SIZE": "2"}, [None]),
        ("rendezvous-variable-missing", {"NNODES": "2", "MASTER_ADDR": "a"}, [Severity.NOTE]),
        ("rendezvous-variable-missing", {"WORLD_SIZE": "2"}, [Severity.NOTE]),
        ("rendezvous-variable-missing", {"WORLD_SIZE": "1"}, []),
        ("rendezvous-variable-missing", {"WORLD_SIZE": "2", "NODE_RANK": "1"}, []),
        ("rendezvous-variable-missing", {"WORLD_SIZE": "2", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, []),
        ("rendezvous-variable-missing", {"NNODES": "2", "MASTER_ADDR": "a", "NODE_RANK": "1"}, []),
        ("rendezvous-variable-missing", {"NNODES": "1", "MASTER_ADDR": "a"}, []),
        ("rendezvous-variable-malformed", {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "8"}, []),
        ("rendezvous-variable-malformed", {"RANK": " 0", "WORLD_SIZE": "2\n", "MASTER_PORT": " 29500"}, []),
        ("rendezvous-variable-malformed", {"RANK": "2", "WORLD_SIZE": "2"}, [None]),
        ("rendezvous-variable-malformed", {"LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "8"}, [None]),
        ("rendezvous-variable-malformed", {"MASTER_PORT": "0"}, [Severity.WARNING]),
        ("rendezvous-variable-malformed", {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "0"}, [None]),
        ("rendezvous-variable-malformed", {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "0"}, []),
        ("obsolete-variable", {"NCCL_MAX_NRINGS": "4", "NCCL_THREAD_THRESHOLDS": "1"}, []),
        ("obsolete-variable", {"NCCL_TREE_THRESHOLD": "4"}, [None]),
    ],
)
def test_what_is_said_of_a_few_environments(
    checks: dict[str, Check], facts: Facts, slug: str, environ: dict[str, str], severities: list[Severity | None]
) -> None:
    """Errors where torch fails, notes on left-overs, and nothing about what works."""
    found = _run(checks, slug, facts=replace(facts, environ=environ))

    assert [finding.severity for finding in found] == severities


@pytest.mark.parametrize(("preload", "alarms"), [("", 0), ("/opt/libnccl.so.2", 1)])
def test_an_nccl_that_the_wheel_does_not_load_is_no_fault(
    checks: dict[str, Check], facts: Facts, preload: str, alarms: int
) -> None:
    """The wheels of torch for CUDA find their own before LD_LIBRARY_PATH, but not before LD_PRELOAD."""
    both = (Library("nvidia-nccl-cu12", "2.26.2"), Library("/opt/libnccl.so.2.18.3", "2.18.3"))
    versions = replace(facts.versions, nccl=both, nccl_pinned=True)
    world = replace(facts, versions=versions, environ={"LD_PRELOAD": preload})

    assert len(_run(checks, "multiple-nccl", facts=world)) == alarms


@pytest.mark.parametrize(
    ("environ", "severities"),
    [
        ({}, [Severity.NOTE]),
        ({"SLURM_NNODES": "1"}, [Severity.NOTE]),
        ({"SLURM_NNODES": "2"}, [None]),
        ({"SLURM_NNODES": "2", "NCCL_IB_DISABLE": "1"}, []),
    ],
)
def test_locked_memory_matters_on_several_hosts(
    checks: dict[str, Check], facts: Facts, environ: dict[str, str], severities: list[Severity | None]
) -> None:
    """NCCL uses RDMA between hosts only; a host without GPUs does not use it at all."""
    small = replace(facts.limits, rdma_devices=("mlx5_0",), memlock=2**16)
    world = replace(facts, environ=environ, limits=small, gpus=replace(facts.gpus, devices=(Gpu(0), Gpu(1))))

    assert [finding.severity for finding in _run(checks, "memlock-limit-too-low", facts=world)] == severities
    assert _run(checks, "memlock-limit-too-low", facts=replace(world, gpus=replace(facts.gpus, devices=()))) == []


@pytest.mark.parametrize(("slug", "quota"), [("cpu-quota-too-low", 0.5), ("omp-oversubscription", None)])
def test_assumed_ranks_raise_no_more_than_a_note(
    checks: dict[str, Check], facts: Facts, slug: str, quota: float | None
) -> None:
    """Where nobody said how many ranks there will be, two are only a guess."""
    threads = {"OMP_NUM_THREADS": str(facts.limits.cpus * 4)}
    limits = replace(facts.limits, cpu_quota=quota)
    world = replace(facts, environ=threads, ranks=2, limits=limits, gpus=replace(facts.gpus, devices=()))
    said = replace(world, environ={**threads, "LOCAL_WORLD_SIZE": "2"})

    assert [finding.severity for finding in _run(checks, slug, facts=world)] == [Severity.NOTE]
    assert [finding.severity for finding in _run(checks, slug, facts=said)] == [None]


def test_a_misspelling_beside_the_right_name_is_a_note(checks: dict[str, Check], facts: Facts) -> None:
    """The right one is in force: nothing is lost."""
    world = replace(facts, environ={"MASTER_ADR": "a", "MASTER_ADDR": "b"})

    assert [finding.severity for finding in _run(checks, "misspelt-variable", facts=world)] == [Severity.NOTE]


@pytest.mark.parametrize(
    ("environ", "times"),
    [
        ({"RANK": "8", "LOCAL_RANK": "0", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, 1),
        ({"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, 0),
        ({"RANK": "1", "WORLD_SIZE": "2"}, 0),
        ({"RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}, 0),
        ({"RANK": "1", "LOCAL_RANK": "4", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, 0),
    ],
)
def test_a_loopback_master_is_told_where_rank_0_is_known_to_be_elsewhere(
    environ: dict[str, str], times: int, facts: Facts, checks: dict[str, Check]
) -> None:
    """Not of ranks that are started by hand on one host, nor from numbers that cannot be right."""
    for name in ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID", "KUBERNETES_SERVICE_HOST"):
        environ = {**environ, name: ""}
    del environ["KUBERNETES_SERVICE_HOST"]

    found = _run(
        checks, "master-addr-of-other-host", facts=replace(facts, environ={**environ, "MASTER_ADDR": "127.0.0.1"})
    )

    assert len(found) == times


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("NCCL_P2P_DISABLE", "true", "1"), ("NCCL_IB_DISABLE", "Yes", "1"), ("NCCL_BUFFSIZE", "4M", "4194304"),
        ("NCCL_BUFFSIZE", "8 KiB", "8192"), ("NCCL_IB_TIMEOUT", "long", ""),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "True", "1"),
        ("TORCH_NCCL_BLOCKING_WAIT", "on", "1"),
        ("TORCH_DISTRIBUTED_DEBUG", "VERBOSE", "DETAIL"), ("TORCH_DISTRIBUTED_DEBUG", "some", ""),
        ("NCCL_P2P_LEVEL", "NVLINK", "NVL"), ("NCCL_NET_GDR_LEVEL", "phb", "PHB"), ("NCCL_P2P_LEVEL", "NODE", ""),
        ("NCCL_DEBUG", "1", "INFO"), ("NCCL_DEBUG", "ERROR", "INFO"),
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb=512", "max_split_size_mb:512"),
        ("OMP_NUM_THREADS", "four", "1"),
    ],
)  # fmt: skip
def test_a_value_that_its_reader_cannot_read_is_told(
    name: str, value: str, meant: str, facts: Facts, checks: dict[str, Check]
) -> None:
    """With the value that was meant, where one is known."""
    (finding,) = _run(checks, "variable-value-invalid", facts=replace(facts, environ={name: value}))

    assert finding.place.variable == name
    assert finding.fix.command == (f"export {name}={meant}" if meant else f"unset {name}")


@given(
    name=st.sampled_from(["NCCL_P2P_DISABLE", "NCCL_BUFFSIZE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS"]),
    number=st.integers(1, 1 << 40),
)
def test_numbers_are_read(name: str, number: int, facts: Facts, checks: dict[str, Check]) -> None:
    """Each number, with blanks around it, and each variable that no library reads as a number."""
    environ = {name: f" {number} ", "NCCL_P2P_LEVEL": "NVL", "NCCL_DEBUG": "info", "NCCL_SHM_DISABLE": "false"}
    assert not _run(checks, "variable-value-invalid", facts=replace(facts, environ=environ))


@pytest.mark.parametrize(
    ("address", "command"),
    [
        ("node[01-04]", "$(scontrol show hostnames 'node[01-04]' | head -1)"),
        ("a[1,3].rack,b7", "$(scontrol show hostnames 'a[1,3].rack,b7' | head -1)"),
        ("node1,node2", "node1"),
    ],
)
def test_of_several_hosts_as_master_the_first_is_named(
    address: str, command: str, facts: Facts, checks: dict[str, Check]
) -> None:
    """A list of Slurm's, or one with commas, is no name that does not resolve."""
    (finding,) = _run(checks, "master-unresolvable", facts=replace(facts, environ={"MASTER_ADDR": address}))

    assert "names several hosts" in finding.message
    assert finding.fix.command == f"export MASTER_ADDR={command}"
