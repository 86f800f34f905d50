"""Several NCCL libraries can be loaded, of different versions.

## What happens

torch's wheel brings its own NCCL (nvidia-nccl-cu12). Another NCCL is loaded instead when LD_PRELOAD names it, or when
it is on LD_LIBRARY_PATH and torch was not installed from a wheel. The other hosts then often load a different version.
Results: "ncclInvalidUsage" with nothing else, "undefined symbol: ncclCommRegister", or hangs between hosts of different
versions. NCCL 2.22 and later compare the versions of all ranks: "Mismatched NCCL version detected : rank 3 version
21805 rank 0 version 22105".

LD_LIBRARY_PATH has no effect on torch's wheels for CUDA. Their libtorch_cuda.so names the folder of its NCCL by
DT_RPATH, which the loader follows first.

Two packages of pip, nvidia-nccl-cu12 and nvidia-nccl-cu13, install one and the same file, so the one that came last is
loaded: "libtorch_cuda.so: undefined symbol: ncclCommResume" where it is older than torch. Uninstalling either takes the
file away from both: install the right one anew.

## How to be sure

ddpdoctor lists the NCCL libraries that the loader can find, and compares their versions. For a wheel with DT_RPATH it
reports LD_PRELOAD only. In a log it compares the versions that the ranks print. To verify it by hand, print the version
that is loaded, on each host:

    NCCL_DEBUG=VERSION torchrun --nproc_per_node=2 train.py

## How to mend it

Install the same torch on all hosts, and let the loader find no other NCCL:

    unset LD_PRELOAD; export LD_LIBRARY_PATH=
    python -c "import torch; print(torch.cuda.nccl.version())"

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: ld.so(8), order of search; pytorch/builder, pull request 1150 (RPATH since 2022);
NCCL documentation, "NCCL_DEBUG".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    NotRun,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP112", Severity.WARNING)
FIX = Fix(
    "have the same torch, and no other NCCL, on all hosts",
    command='unset LD_PRELOAD; export LD_LIBRARY_PATH=; python -c "import torch; print(torch.cuda.nccl.version())"',
)
ONE_PACKAGE = Fix(
    "have one NCCL package, that which torch asks for, and none before it on the loader's path",
    command="unset LD_PRELOAD; export LD_LIBRARY_PATH=\n"
    "pip uninstall -y nvidia-nccl-cu11 nvidia-nccl-cu12 nvidia-nccl-cu13\n"
    "pip install --no-deps \"$(python -c 'import importlib.metadata as m; "
    'print(next(r for r in m.requires("torch") if "nvidia-nccl" in r).split(";")[0])\')"   # what torch asks for\n'
    'python -c "import torch; print(torch.cuda.nccl.version())"',
)
PRINTED = r"NCCL version (\d+\.\d+\.\d+)\+cuda"


@probe
def libraries(facts: Facts) -> Iterator[Finding]:
    """Compare the versions that can be found."""
    found = facts.versions.nccl
    if not found:
        raise NotRun("no NCCL library beside torch's own")
    preloaded = facts.environ.get("LD_PRELOAD", "")
    outside = [
        library
        for library in found
        if "/" in library.path and (not facts.versions.nccl_pinned or "libnccl" in preloaded)
    ]
    if outside and len({library.version for library in found}) > 1:
        yield Finding(
            f"{len(found)} NCCL libraries of different versions can be loaded; {outside[0].path} comes first",
            tuple(Evidence(f"{library.path}: {library.version}", "one version", "loader's path") for library in found),
            Fix("take the other one off the loader's path", command="unset LD_PRELOAD; export LD_LIBRARY_PATH="),
            Place(variable="LD_LIBRARY_PATH"),
        )


@log_pattern(r"Mismatched NCCL version detected ?: rank (\d+) version (\d+) rank (\d+) version (\d+)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL itself compared the ranks."""
    one, version, other, others = match.groups()
    yield Finding(
        f"rank {one} has NCCL {_version(version)}, and rank {other} has NCCL {_version(others)}",
        (record.proof(match, "one version"),),
        FIX,
        record.place,
        severity=Severity.ERROR,
    )


@log_pattern(r"undefined symbol: (nccl[A-Z]\w+)")
def at_import(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Torch was built with a newer NCCL than the one that is loaded."""
    yield Finding(
        f"an older NCCL is loaded than the one torch was built with: it has no {match[1]}",
        (record.proof(match, "the NCCL that came with torch"),),
        ONE_PACKAGE,
        record.place,
        severity=Severity.ERROR,
        ambiguity=Ambiguity(
            (
                "two packages, nvidia-nccl-cu12 and nvidia-nccl-cu13, write one file, and the older one came last",
                "the package is older than torch asks for: another package, as vLLM, has pinned it",
                "LD_LIBRARY_PATH or LD_PRELOAD leads to the NCCL of the system, or of conda",
            ),
            "pip list | grep -i nccl; echo $LD_PRELOAD $LD_LIBRARY_PATH; "
            "LD_DEBUG=libs python -c 'import torch' 2>&1 | grep -m2 'libnccl.so.2'",
        ),
    )


@log_pattern(
    r"ncclInvalidUsage: This usually reflects invalid usage|\binvalid usage(?: \(run with [^)\n]*\))?, NCCL version",
    context=(PRINTED,),
)
def by_what_was_printed(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Each rank 0 of a host prints its version; two versions in one log are two libraries."""
    printed = {found[1]: each.proof(found, "one version") for each, found in log.find(PRINTED)}
    if len(printed) > 1:
        yield Finding(
            f"different versions of NCCL take part: {', '.join(sorted(printed))}",
            (record.proof(match, "no error"), *printed.values()),
            FIX,
            record.place,
            severity=Severity.ERROR,
        )


def _version(code: str) -> str:
    """Read NCCL's number: 21805 is 2.18.5."""
    number = int(code)
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
