"""torch cannot be imported.

Nothing can train. Typical: torch is not installed in this environment; a shared library is missing or of another
version (LD_LIBRARY_PATH, LD_PRELOAD); a file of the user's is called torch.py; numpy and torch do not fit.

To be sure: `python -c "import torch"` in the same directory, with the same variables.

The job server imports torch as a training would; what it raised is shown. Holds for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Severity
from ddpdoctor.check import probe

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts
    from ddpdoctor.probe.jobs import Jobs

CARD = Card("DDP113", Severity.ERROR)


@probe
def by_importing_it(facts: Facts, jobs: Jobs) -> Iterator[Finding]:
    """Ask the job server."""
    if problem := jobs.problem():
        last = problem.strip().splitlines()[-1]
        yield Finding(
            f"import torch fails: {last}",
            (Evidence(last, "import torch returns", str(facts.versions.torch_path or "no torch installed")),),
            Fix("see the whole error, then install torch anew", command='python -c "import torch"'),
        )
