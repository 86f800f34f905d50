"""Several NCCL libraries can be loaded, of different versions.

torch's wheel brings its NCCL (nvidia-nccl-cu12). Another one on LD_PRELOAD, or on LD_LIBRARY_PATH where torch was not
installed from a wheel, is loaded instead, on this host and perhaps not on the others: "ncclInvalidUsage" with nothing
else, "undefined symbol: ncclCommRegister", or hangs between hosts of different versions.

LD_LIBRARY_PATH does nothing to torch's wheels for CUDA: their libtorch_cuda.so names the folder of its NCCL by
DT_RPATH, which the loader follows first. Where it does, only LD_PRELOAD is reported.

To be sure: `NCCL_DEBUG=VERSION` prints the version that was loaded, on each host.

Source: ld.so(8), order of search; pytorch/builder, pull request 1150 (RPATH since 2022); NCCL documentation,
"NCCL_DEBUG". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.facts import Facts

CARD = Card("DDP112", Severity.WARNING)


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
