"""A variable has a value that its reader cannot read.

## What happens

`export NCCL_P2P_DISABLE=true` switches nothing off. NCCL reads its switches and sizes as numbers: it takes `true` for
0, newer versions for the default, and says so at NCCL_DEBUG=INFO only. Of `NCCL_BUFFSIZE=4M` it takes the number in
front, 4 bytes. torch is stricter: a word where TORCH_NCCL_ASYNC_ERROR_HANDLING has a number ends each rank when its
NCCL group is made ("Invalid value for environment variable"), and TORCH_DISTRIBUTED_DEBUG=verbose ends `import torch`.
A level that NCCL has no name for (`NCCL_P2P_LEVEL=NVLINK`, where it is NVL) is as if it was not set; of NCCL_DEBUG=1 or
NCCL_DEBUG=DEBUG nothing is logged. `PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb=512`, without the colon after the key,
ends each rank as it comes to its GPU ("Unrecognized key", "Unrecognized CachingAllocator option").
The OpenMP library ignores `OMP_NUM_THREADS=four`, and each rank uses all cores.

## How to be sure

`NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ENV` prints "NCCL_P2P_DISABLE set by environment to 0." where 1 was meant. Words for
"off" are not reported: most of these switches are 0 then, as meant.

## How to mend it

Give a number: 1 for on, 0 for off, sizes in bytes.

    export NCCL_P2P_DISABLE=1

## Versions and sources

Holds for torch 2.2 to 2.13 and NCCL 2.19 to 2.28; what TORCH_DISTRIBUTED_DEBUG and OMP_NUM_THREADS do was seen with
torch 2.13 CPU, the allocator's refusals with torch 2.2.2, 2.13 and 2.14.1. Sources: NCCL documentation, "Environment
Variables", and NCCL's param.cc, graph/paths.cc (ncclGetLevel) and debug.cc (ncclDebugInit); torch's Utils.hpp
(getCvarInt, getCvarBool) and debug.cpp; the OpenMP specification.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Record, Severity, lint, log_pattern, probe

from ._readers import ALLOCATOR, expected_of, misread

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, LaunchScript, Script

AILMENT = Ailment("DDP123", Severity.WARNING)


@probe
def in_the_environment(facts: Facts) -> Iterator[Finding]:
    """Read the values as their readers do."""
    for name, value in sorted(facts.environ.items()):
        if (wrong := misread(name, value)) is not None:
            told, expected, meant = wrong
            yield Finding(
                f"{name}={value}: {told}",
                (Evidence(f"{name}={value}", expected, "environment"),),
                Fix("give a value that is read", command=f"export {name}={meant}" if meant else f"unset {name}"),
                Place(variable=name),
                severity=_severity(name),
            )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look where the script sets a variable; those that ``import torch`` reads are read by then."""
    for node in script.nodes(ast.Assign):
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=environ, slice=ast.Constant(value=str(name)))],
                value=ast.Constant(value=str(value)) as given,
            ) if script.resolve(environ) == "os.environ" and _is_read_later(name):
                if (wrong := misread(name, value)) is None:
                    continue
                told, expected, meant = wrong
                yield Finding(
                    f"{name}={value}: {told}",
                    (script.seen(node, expected),),
                    Fix(f"give {expected}", edits=(script.replaced(given, f'"{meant}"'),) if meant else ()),
                    script.place(node),
                    severity=_severity(name),
                )


def _is_read_later(name: str) -> bool:
    """Whether it is read once there is a group, or a tensor on a GPU."""
    return "NCCL_" in name or name in ALLOCATOR


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look where a file that starts trainings sets a variable."""
    for setting in launch.settings:
        word = setting.value
        value = launch.value(word)
        if word is None or value is None or word.reads or (wrong := misread(setting.name, value)) is None:
            continue
        told, expected, meant = wrong
        yield Finding(
            f"{setting.name}={value}: {told}",
            (launch.seen(setting.line, expected),),
            Fix(f"give {expected}", edits=(launch.replaced(word.begin, word.end, meant),) if meant else ()),
            launch.place(setting.line, setting.begin),
            severity=_severity(setting.name),
        )


@log_pattern(
    r"Invalid value for environment variable: (?P<name>(?:TORCH_)?NCCL_\w+)"
    r"|The value of (?P<level>TORCH_DISTRIBUTED_DEBUG) must be OFF, INFO, or DETAIL"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the name of the variable, which torch gives."""
    name = match["name"] or match["level"]
    yield Finding(
        f"torch cannot read the value of {name}",
        (record.proof(match, expected_of(name)),),
        Fix("give a value that is read, or none", command=f"unset {name}"),
        Place(variable=name, rank=record.rank, host=record.node),
        severity=Severity.ERROR,
    )


def _severity(name: str) -> Severity | None:
    return Severity.ERROR if name.startswith("TORCH_") else None
