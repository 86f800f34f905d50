"""Two copies of the OpenMP runtime are loaded into one process.

## What happens

"OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized": the runtime of Intel or
LLVM ends the process where a second one begins in it, without a traceback. Each of two packages has brought its own,
mostly torch by pip and numpy, scipy or scikit-learn with MKL by conda.

## How to be sure

The line itself; two files of these names in one environment: `find $CONDA_PREFIX -name "lib*omp*"`, and on Windows
`where /r %CONDA_PREFIX% libiomp5md.dll`.

## How to mend it

Take all packages that compute from one source: all by pip in a virtual environment of their own, or all by conda-forge.
KMP_DUPLICATE_LIB_OK=TRUE lets the program go on; by the words of the runtime itself it can then crash, or compute wrong
results in silence.

## Versions and sources

Holds for all versions. Source: LLVM, openmp/runtime/src/kmp_runtime.cpp and i18n/en_US.txt, "DuplicateLibrary".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP127", Severity.ERROR)


@log_pattern(
    r"OMP: Error #15: Initializing (?P<second>[^\s,]{1,300}), but found (?P<first>[^\s,]{1,300}) already initialized"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the two files."""
    yield Finding(
        f"a second OpenMP runtime, {match['second']}, ends the process: {match['first']} runs in it already",
        (record.proof(match, "one OpenMP runtime in a process"),),
        Fix(
            "take all packages that compute from one source, in an environment of their own",
            command="python -m venv venv\nvenv/bin/pip install torch numpy   # and all others; none of them by conda",
        ),
        record.place,
    )
