"""torch cannot be imported.

## What happens

`import torch` raises an error, so no rank starts. Usual causes: torch is not installed in this environment; a shared
library is missing or has another version (LD_LIBRARY_PATH, LD_PRELOAD); a file of the user is called torch.py and is
imported instead; the versions of numpy and torch do not fit. On Windows "Error loading fbgemm.dll or one of its
dependencies" mostly means that the file is there, and a library that it is linked with is not.

## How to be sure

ddpdoctor imports torch in a new process, as a training does, and reports what this raises and the path of the torch
that is installed. To see the whole traceback, import it in the same directory, with the same environment variables:

    python -c "import torch"

A traceback through a torch.py of the project shows a file that hides torch, and so do, in logs, "'torch' is not a
package" and "partially initialized module 'torch'". "cannot open shared object file" or
"undefined symbol" shows a library.

## How to mend it

Read the whole error first. Then:

- "No module named 'torch'": install torch in this environment, `pip install torch`; the command for each version of
  CUDA stands at https://pytorch.org/get-started/locally/.
- A file torch.py: rename it.
- A shared library: `unset LD_PRELOAD LD_LIBRARY_PATH`, then import again.
- A DLL on Windows: install Microsoft's C++ runtime. fbgemm.dll of torch 2.3 and 2.4.0 asks for libomp140.x86_64.dll,
  which that runtime does not bring; torch 2.4.1 and later do not.
- Otherwise install torch and numpy anew, best in a fresh virtual environment.

## Versions and sources

Holds for all versions of torch. Sources: the error of `import torch` itself, which the finding shows;
pytorch issue 131662.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Place, Record, Severity, log_pattern, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, Jobs

AILMENT = Ailment("DDP113", Severity.ERROR)
HIDDEN = re.compile(r"File \"([^\"]*[/\\]torch\.py)\"|consider renaming '([^']*[/\\]torch\.py)'")


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
    elif (problem := jobs.problem()) and (file := _hides_torch(problem)) is not None:
        yield _hidden(Evidence(problem.strip().splitlines()[-1], "import torch returns", file), Place(file=file))
    elif problem:
        last = problem.strip().splitlines()[-1]
        yield Finding(
            f"import torch fails: {last}",
            (Evidence(last, "import torch returns", str(facts.versions.torch_path or "no torch installed")),),
            Fix("see the whole error, then install torch anew", command='python -c "import torch"'),
        )


@log_pattern(
    r"ModuleNotFoundError: No module named 'torch\.[\w.]+'; 'torch' is not a package"
    r"|AttributeError: (?:partially initialized )?module 'torch' has no attribute '\w+'"
    r" \((?:most likely due to a circular import|consider renaming)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Look for the file that was imported in the place of torch."""
    if (found := HIDDEN.search(record.text)) is not None:
        file = found[1] or found[2]
        yield _hidden(record.proof(match, "torch itself"), Place(file=file, rank=record.rank, host=record.node))


@log_pattern(r'\[WinError 12[67]\][^\n]*Error loading "(?P<library>[^"\n]+\.dll)" or one of its dependencies')
def of_a_library(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what torch says on Windows where a library of its own cannot be loaded."""
    name = re.split(r"[\\/]", match["library"])[-1]
    needs_openmp = name == "fbgemm.dll"
    wanted = "'torch>=2.4.1'" if needs_openmp else "torch"
    yield Finding(
        f"Windows cannot load {name} of torch, or a library that it is linked with",
        (record.proof(match, "import torch returns"),),
        Fix(
            "install Microsoft's C++ runtime, then torch anew",
            command=f"winget install Microsoft.VCRedist.2015+.x64\npip install --force-reinstall --no-deps {wanted}",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "Microsoft's C++ runtime is missing or old",
                *(("libomp140.x86_64.dll is missing, as torch 2.3 and 2.4.0 need it",) if needs_openmp else ()),
                "the installation of torch is incomplete",
            ),
            f'dumpbin /dependents "{match["library"]}"   # then `where` for each name that it prints',
        ),
    )


def _hides_torch(problem: str) -> str | None:
    """Return the file that is imported in the place of torch, where that is one of the user's."""
    if (found := HIDDEN.search(problem)) is not None:
        return found[1] or found[2]
    spec = PathFinder.find_spec("torch")
    return spec.origin if spec is not None and not spec.submodule_search_locations else None


def _hidden(proof: Evidence, where: Place) -> Finding:
    file = where.file or ""
    other = re.sub(r"torch\.py$", "my_torch.py", file)
    return Finding(
        f"{file} is imported in the place of torch",
        (proof,),
        Fix("give the file another name", command=f"mv {shlex.quote(file)} {shlex.quote(other)}"),
        where,
    )
