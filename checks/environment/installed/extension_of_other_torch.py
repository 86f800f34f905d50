"""A compiled extension was built for another torch than the one installed.

## What happens

Extensions such as flash-attn, Transformer Engine, apex, xformers or torch_ccl are linked to the C++ of the torch that
they were built with, and that changes with each release: "undefined symbol: _ZN3c104cuda9SetDeviceEi" (c10, at and
torch are torch's own names), or "Mismatch in kernel C++ signatures". All ranks fail in the same import, or the one
whose host has another environment. Transformer Engine hides the error of its part for torch: "module
'transformer_engine' has no attribute 'pytorch'".

## How to be sure

The file in the message names the extension; `python -c "import torch; print(torch.__version__, torch.version.cuda,
torch.compiled_with_cxx11_abi())"` is what it has to be built for. `_cxx11` in the symbol hints at the ABI: a wheel
with `cxx11abiFALSE` does not fit torch 2.7 and later from PyPI.

## How to mend it

Install the wheel of the extension for this torch, CUDA and ABI, or build it against the installed torch, without
isolation: in isolation pip builds it for another one.

## Versions and sources

Holds for any torch; 2.2 to 2.13 all differ from each other. Source: torch.utils.cpp_extension; PyTorch C++ ABI notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP130", Severity.ERROR)
UNDEFINED = (
    r"(?:ImportError: |OSError: |because of the following error[^\n]{0,80}\n?)(?P<file>[^\s:]+\.so[\w.]*): undefined "
    r"symbol: (?P<symbol>_ZN?K?(?:2at|3c10|5torch|4c10d)\w*|THP[A-Z]\w*)"
)
SHOWN = 60  # characters of a symbol
NAMES = {"flash_attn": "flash-attn", "transformer_engine": "transformer-engine", "oneccl": "oneccl-bind-pt"}


@log_pattern(UNDEFINED)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the extension by its file."""
    name = re.sub(r"\.(?:cpython|abi3|so).*", "", match["file"].rsplit("/", 1)[-1])
    package = next((package for part, package in NAMES.items() if part in match["file"]), name)
    symbol = match["symbol"] if len(match["symbol"]) <= SHOWN else match["symbol"][:SHOWN] + "..."
    yield Finding(
        f"{name} was built for another torch: the installed one has no {symbol}",
        (record.proof(match, "an extension that was built for the installed torch"),),
        Fix(
            f"build {package} for the installed torch, or install the wheel made for it",
            command=f"pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps {package}",
        ),
        record.place,
    )


@log_pattern(r"Mismatch in kernel C\+\+ signatures")
def by_its_registration(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """See an extension register an operator of torch with the signature of another version."""
    yield Finding(
        "an extension registers an operator of torch with another version's signature",
        (record.proof(match, "an extension that was built for the installed torch"),),
        Fix(
            "install the extension that was imported last in the release made for this torch",
            command="python -m torch.utils.collect_env",
        ),
        record.place,
    )


@log_pattern(r"AttributeError: module 'transformer_engine' has no attribute 'pytorch'")
def behind_a_missing_part(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Transformer Engine hides why its part for torch cannot be imported; importing that part alone tells it."""
    yield Finding(
        "Transformer Engine's part for torch could not be imported, and the reason was not told",
        (record.proof(match, "import transformer_engine.pytorch succeeds"),),
        Fix(
            "import it alone, which tells the reason, and install what it names for the installed torch",
            command='python -c "import transformer_engine.pytorch"\n'
            'python -c "import flash_attn"   # of another torch: pip uninstall flash-attn',
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "flash-attn, or another extension that it imports, was built for another torch",
                "transformer_engine was installed without its part for torch (transformer_engine[pytorch])",
                "Transformer Engine itself was built for another torch",
            ),
            'python -c "import transformer_engine.pytorch"',
        ),
    )
