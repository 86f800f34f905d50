"""numpy is not there for torch, whose object collectives need it.

## What happens

torch runs without numpy. But all_gather_object, broadcast_object_list and the other object collectives then raise
"RuntimeError: Numpy is not available", and so do Tensor.numpy() and torch.from_numpy(). Libraries use these collectives
to gather metrics or checkpoint metadata over the ranks, so the error often comes only at the first validation or the
first checkpoint. A numpy of another major version than torch was built for raises the same error (torch before 2.3 with
numpy 2): torch then warns "Failed to initialize NumPy: _ARRAY_API not found" when it is imported.

## How to be sure

ddpdoctor looks for the distribution numpy among the installed packages. The finding is a note: a training that uses
none of these functions runs without numpy. To verify it by hand, with the Python of the training, on each host:

    python -c "import numpy; print(numpy.__version__)"

## How to mend it

Install it in the environment of the training, on each host, and add it to the requirements:

    pip install numpy            # torch 2.3 and later
    pip install 'numpy<2'        # torch 2.2, and packages built for numpy 1

## Versions and sources

Since torch 2.0 numpy is no dependency of torch's wheel. Seen with torch 2.13 (CPU build). Source: NumPy 2.0 migration
guide.
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
    Record,
    Severity,
    log_pattern,
    probe,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP114", Severity.NOTE)
TOLD = (
    r"Failed to initialize NumPy: "
    r"(?P<why>No module named 'numpy'|_ARRAY_API not found|numpy\.core\.multiarray failed to import)"
)
LATER, EARLIER = "pip install numpy", "pip install 'numpy<2'"


@probe
def installed(facts: Facts) -> Iterator[Finding]:
    """Look for the distribution."""
    if facts.versions.torch is None:
        raise NotRun("torch is not installed")
    if "numpy" not in facts.versions.frameworks:
        yield Finding(
            f"numpy is not installed beside torch {facts.versions.torch}: object collectives raise an error",
            (Evidence("no distribution called numpy", "numpy", "installed packages"),),
            Fix("install it", command="pip install numpy"),
        )


@log_pattern(r"RuntimeError: Numpy is not available", context=(TOLD,))
def when_asked_for(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Tell a numpy that is not installed from one of another major version, by what torch said when it was imported."""
    found = log.first(TOLD)
    told = found[1]["why"] if found else ""
    seen: tuple[Evidence, ...] = (record.proof(match, "a numpy that torch can use"),)
    seen += (found[0].proof(found[1], ""),) if found else ()
    absent = "No module named" in told
    if told:
        said = "numpy is not installed" if absent else "torch was built for another major version of numpy"
        fix = Fix(
            "install it into the Python that runs the ranks, on each host"
            if absent
            else "install the version that fits",
            command=LATER if absent else EARLIER,
        )
    else:
        said = "torch finds no numpy that it can use"
        fix = Fix("install one that fits, on each host", command=f"{LATER}   # torch 2.3 and later; before: {EARLIER}")
    yield Finding(
        f"{said}: object collectives, Tensor.numpy() and torch.from_numpy() raise an error",
        seen,
        fix,
        record.place,
        severity=Severity.ERROR,
        ambiguity=None
        if told
        else Ambiguity(
            ("numpy is not installed", "numpy is of another major version than torch was built for"),
            'python -c "import torch, numpy; print(torch.__version__, numpy.__version__)"',
        ),
    )
