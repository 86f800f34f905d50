"""bitsandbytes finds no library for the CUDA of this torch, and works on no GPU.

## What happens

bitsandbytes loads a library of its own for each version of CUDA (`libbitsandbytes_cuda124.so`). Where it finds none, it
says "compiled without GPU support" and falls back to one without GPU functions: the first 8-bit optimizer or quantised
layer then ends every rank: "CUDA Setup failed despite GPU being available", "'NoneType' object has no attribute
'cadam32bit_grad_fp32'", "undefined symbol: cadam32bit_grad_fp32".

## How to be sure

`python -m bitsandbytes` in the environment of the ranks says which CUDA it sees and which library it wants; `ls
.../site-packages/bitsandbytes/*.so` which there are.

## How to mend it

Install a version that brings the library for `torch.version.cuda`; on a host with several CUDA toolkits name the one
that is meant, `export BNB_CUDA_VERSION=124`, for which there is a library.

## Versions and sources

The words are those of bitsandbytes in reports of 2023 and later; not run here. Sources: bitsandbytes/cextension.py; its
documentation, "Installation guide".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP124", Severity.ERROR)
WANTED = (
    r"(?:Required library version not found: |Configured CUDA binary not found at "
    r"[^\n]{0,200}?)(?P<library>libbitsandbytes_cuda\w+\.so)"
)


@log_pattern(
    r"CUDA [Ss]etup failed despite (?:GPU|CUDA) being available|CUDA SETUP: Setup Failed!"
    r"|'NoneType' object has no attribute 'c(?:adam|adagrad|lion|rmsprop|momentum|lamb|lars)\d+bit\w*'"
    r"|(?:object has no attribute|undefined symbol:) '?c(?:adam32bit_grad_fp32|get_col_row_stats"
    r"|quantize_blockwise_\w+)"
    r"|Attempted to use bitsandbytes native library functionality but it's not available"
    r"|🚨 CUDA (?:VERSION MISMATCH|SETUP ERROR)",
    context=(WANTED,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name the library that it wants, where it says so."""
    if not record.error and "Setup Failed!" not in match[0]:
        return
    wanted = log.first(WANTED)
    yield Finding(
        "bitsandbytes has no library for the CUDA of this host's torch"
        + (f": it looks for {wanted[1]['library']}" if wanted else ""),
        (
            record.proof(match, "a bitsandbytes with functions for the GPU"),
            *((wanted[0].proof(wanted[1]),) if wanted else ()),
        ),
        Fix(
            "install a version that brings the library for this CUDA",
            command="python -m bitsandbytes; python -c 'import torch; print(torch.version.cuda)'\n"
            "pip install --upgrade bitsandbytes",
        ),
        record.place,
    )
