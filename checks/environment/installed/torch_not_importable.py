"""torch cannot be imported.

## What happens

`import torch` raises an error, so no rank starts. Usual causes: torch is not installed in this environment; a shared
library is missing or has another version (LD_LIBRARY_PATH, LD_PRELOAD); a file of the user is called torch.py and is
imported instead; the versions of numpy and torch do not fit.

## How to be sure

ddpdoctor imports torch in a new process, as a training does, and reports what this raises and the path of the torch
that is installed. To see the whole traceback, import it in the same directory, with the same environment variables:

    python -c "import torch"

A traceback through a torch.py of the project shows a file that hides torch. "cannot open shared object file" or
"undefined symbol" shows a library.

## How to mend it

Read the whole error first. Then:

- "No module named 'torch'": install torch in this environment, `pip install torch`; the command for each version of
  CUDA stands at https://pytorch.org/get-started/locally/.
- A file torch.py: rename it.
- A shared library: `unset LD_PRELOAD LD_LIBRARY_PATH`, then import again.
- Otherwise install torch and numpy anew, best in a fresh virtual environment.

## Versions and sources

Holds for all versions of torch. Source: the error of `import torch` itself, which the finding shows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, Jobs

AILMENT = Ailment("DDP113", Severity.ERROR)


@probe
def by_importing_it(facts: Facts, jobs: Jobs) -> Iterator[Finding]:
    """Ask the job server."""
    if facts.versions.torch_path is None:
        yield Finding(
            "torch is not installed for this Python",
            (Evidence(f"no package torch for {sys.executable}", "import torch returns"),),
            Fix(
                "install torch; the command for each version of CUDA stands at "
                "https://pytorch.org/get-started/locally/",
                command="pip install torch",
            ),
        )
    elif problem := jobs.problem():
        last = problem.strip().splitlines()[-1]
        yield Finding(
            f"import torch fails: {last}",
            (Evidence(last, "import torch returns", str(facts.versions.torch_path or "no torch installed")),),
            Fix("see the whole error, then install torch anew", command='python -c "import torch"'),
        )
