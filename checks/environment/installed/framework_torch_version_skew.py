"""Installed code relies on a part of torch that the installed torch does not have.

## What happens

Frameworks reach into torch's private names (`_use_replicated_tensor_module`, `_sync_params`), and torch changes them
from one release to the next: "'MMDistributedDataParallel' object has no attribute '_use_replicated_tensor_module'",
"cannot import name 'log' from 'torch.distributed.elastic.agent.server.api'". Behaviour changes too: SyncBatchNorm of
torch 1.3 and older wants "at least 3D input (got 2D input)", where BatchNorm1d, which it replaced, takes two
dimensions.

## How to be sure

The missing name is torch's, and an installed package asks for it; the package's notes name the
versions of torch that it is made for.

## How to mend it

Bring the two together: upgrade the framework, or install the torch that it was made for.

## Versions and sources

Holds for any version of torch; torch 2.2 to 2.13 is what ddpdoctor itself knows. Source: torch's own modules, and the
compatibility tables of Lightning, mmcv and DeepSpeed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

from ...model._logs import is_private
from ..torch_build._distributed import EXTENSION, is_missing_with

AILMENT = Ailment("DDP119", Severity.ERROR)
PACKAGE = re.compile(r"(?:site|dist)-packages[/\\](\w+)")
CHANGED = ("SyncBatchNorm", "compile", "_six")  # came with torch 1.1 and 2.0; went with torch 2.0


@log_pattern(r"'(\w*DataParallel|SyncBatchNorm)' object has no attribute '(\w+)'")
def of_a_wrapper(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a private attribute that an installed subclass of DDP expects."""
    if is_private(record, match[2]):
        yield _finding(record, match, match[2])


@log_pattern(r"(?:^|\n)ImportError: cannot import name '(\w+)' from '(torch(?:\.\w+)*)'(?! \(most likely)")
def of_an_import(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise an import of what torch does not have, although it was built with all its parts."""
    if "circular import" not in record.text and not is_missing_with(match[2], match[1]):
        yield _finding(record, match, f"{match[2]}.{match[1]}")


@log_pattern(r"module '(torch(?:\.\w+)*)' has no attribute '(\w+)'")
def of_a_module(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise an installed package that asks; a slip in the user's own file is another matter."""
    asked_by_package = bool(record.frames) and not record.frames[-1].is_users
    if (asked_by_package or match[2] in CHANGED) and not is_missing_with(match[1], match[2]):
        yield _finding(record, match, f"{match[1]}.{match[2]}")


@log_pattern(r"ModuleNotFoundError: No module named '(torch\.[\w.]+)'")
def of_a_missing_module(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a module of torch that is gone, or not there yet."""
    if match[1] != EXTENSION:
        yield _finding(record, match, match[1])


@log_pattern(r"== rebuilt_param_indices_\.size\(\)\s*INTERNAL ASSERT|rebuilt parameter indices size is not same as")
def of_a_reducer(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a subclass of DDP that drives the reducer by itself, and does not have it rebuild its buckets."""
    found = [PACKAGE.search(frame.file) for frame in record.frames if "parallel" in frame.file]
    package = next((each[1] for each in reversed(found) if each and each[1] != "torch"), "")
    if package:
        yield Finding(
            f"{package}'s own subclass of DistributedDataParallel drives the reducer as it was before torch 1.7",
            (record.proof(match, "the reducer's buckets are rebuilt after the first step"),),
            Fix(
                f"upgrade {package}, or install the torch that it was made for",
                command=f"pip install --upgrade {package}",
            ),
            record.place,
        )


@log_pattern(r"ValueError: expected at least 3D input \(got 2D input\)")
def of_sync_batchnorm(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise SyncBatchNorm before torch 1.4."""
    yield _finding(record, match, "SyncBatchNorm of two dimensions")


def _finding(record: Record, match: re.Match[str], name: str) -> Finding:
    frames = [found[1] for frame in record.frames if (found := PACKAGE.search(frame.file)) and found[1] != "torch"]
    package = frames[-1] if frames else "the package that asks for it"
    return Finding(
        f"the installed torch has no {name}, on which {package if frames else 'the code'} relies",
        (record.proof(match, f"a torch with {name}"),),
        Fix(
            f"upgrade {package}, or install the torch that it was made for",
            command=f"pip install --upgrade {package}" if frames else "python -m torch.utils.collect_env",
        ),
        record.place,
    )
