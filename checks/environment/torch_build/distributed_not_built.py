"""This build of torch has no torch.distributed.

## What happens

torch can be built without its distributed package (USE_DISTRIBUTED=0): NVIDIA's wheels for Jetson are, as are many of
other makers and older ones for macOS and Windows. `torch.distributed.is_available()` is False there, and nearly every
other name is missing: "module 'torch.distributed' has no attribute 'init_process_group'" (or 'is_initialized'),
"cannot import name 'ProcessGroup' from 'torch.distributed'", "No module named 'torch._C._distributed_c10d'; 'torch._C'
is not a package". Often a package fails with it that asks for the rank only.

## How to be sure

`python -c "import torch.distributed as d; print(d.is_available())"` prints False. These names are in all builds with
distributed support, of any version.

## How to mend it

Install a build with it: the wheels of pytorch.org for Linux, Windows and macOS have it; for Jetson choose a wheel or a
container with distributed support, or build torch with `USE_DISTRIBUTED=1`. On one device, guard the calls with
`torch.distributed.is_available()`.

## Versions and sources

Holds for all versions of torch. Source: torch/distributed/__init__.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

from ._distributed import EXTENSION, is_missing_with

AILMENT = Ailment("DDP122", Severity.ERROR)
WINDOWS = re.compile(r"\b[A-Za-z]:\\\w")


@log_pattern(r"AttributeError: module '(torch\.distributed)' has no attribute '(\w+)'")
def of_an_attribute(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a name that every build with torch.distributed has."""
    if is_missing_with(match[1], match[2]):
        yield _finding(record, match, match[2])


@log_pattern(r"(?:^|\n)ImportError: cannot import name '(\w+)' from '(torch\.distributed)'(?! \(most likely)")
def of_an_import(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise the import of such a name."""
    if is_missing_with(match[2], match[1]):
        yield _finding(record, match, match[1])


@log_pattern(rf"ModuleNotFoundError: No module named '({re.escape(EXTENSION)})'")
def of_its_extension(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise the compiled part that is missing."""
    yield _finding(record, match, match[1])


def _finding(record: Record, match: re.Match[str], name: str) -> Finding:
    return Finding(
        f"this torch was built without torch.distributed: it has no {name}",
        (record.proof(match, "a name that every torch with distributed support has"),),
        Fix(
            "install torch 1.7 or later, the first with distributed training on Windows, and use gloo there"
            if WINDOWS.search(record.text)
            else "install a torch that was built with it (for Jetson: a wheel or container with distributed support)",
            command='python -c "import torch; print(torch.__version__, torch.distributed.is_available())"',
        ),
        record.place,
    )
