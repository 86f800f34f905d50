"""mp.spawn is told to start no process.

## What happens

`mp.spawn(train, nprocs=torch.cuda.device_count())` starts as many ranks as there are GPUs to be seen. Where none is,
that is 0: torch starts nothing, returns at once, and says nothing. The script comes to its end with exit status 0,
without a step of training.

## How to be sure

`python -c "import torch; print(torch.cuda.device_count())"`, in the job's own environment, prints 0. Reported where
torch.multiprocessing is called with nprocs=0.

## How to mend it

See why no GPU is visible: CUDA_VISIBLE_DEVICES is empty, the scheduler was not asked for one, the container was started
without them, or torch is a build for CPUs. Stop with an error where there is none, instead of going on.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/multiprocessing/spawn.py, `start_processes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from linecache import getline

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NothingSpawned, Severity, place, watch

AILMENT = Ailment("DDP496", Severity.ERROR)
COUNT = re.compile(r"nprocs\s*=\s*(?P<count>[\w.]+(?:\(\))?)")


@watch(NothingSpawned)
def while_training(event: NothingSpawned) -> Iterator[Finding]:
    """Quote what the line takes for the number."""
    site = event.site
    found = COUNT.search(getline(site.file, site.line)) if site is not None else None
    count = found["count"] if found else "nprocs"
    yield Finding(
        "mp.spawn is told to start 0 processes: it returns at once, and nothing is trained",
        (Evidence(f"{count} is 0" if found else "nprocs=0", "1 or more", "the call"),),
        Fix(
            "see why the count is 0: of GPUs, why none is visible; and stop where it is",
            diff=f'+if {count} == 0:\n+    raise SystemExit("no GPU is visible to torch")\n'
            f" mp.spawn(train, nprocs={count})",
            command="ddpdoctor check --only gpu   # in the environment of the job",
        ),
        place(site),
    )
