"""Several ranks or hosts write one cache of compiled kernels, and one finds the other's files gone.

## What happens

Triton and torch.compile keep compiled kernels in a folder (TRITON_CACHE_DIR, by default ~/.triton/cache;
TORCHINDUCTOR_CACHE_DIR, by default /tmp/torchinductor_USER). Where that lies on a network file system, ranks of
several hosts write and rename the same files, and one of them ends with "OSError: [Errno 116] Stale file handle",
"FileNotFoundError: ... .ttir.tmp.pid_15735_304289", "... .cubin", "... .hsaco", "ImportError: .../.triton/cache/...so:
cannot stat shared object", or JSON that was half written. It comes and goes, at the first steps or where shapes change.
The other ranks wait in their next collective.

## How to be sure

The path, or a frame of the traceback, is that of the cache; `stat -f -c %T FOLDER` says `nfs`, `lustre` or the like.

## How to mend it

A folder on a local disk of each host, and of each rank where ranks of one host still meet.

## Versions and sources

Holds for torch 2.2 to 2.13 and Triton 2.1 to 3.6. Source: triton/runtime/cache.py; torch/_inductor/codecache.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP170", Severity.ERROR)
FOLDER = r"\.triton/|triton[_-]?cache|torchinductor|inductor[_-]?cache"
KERNEL = r"\.(?:cubin|hsaco|ttir|ttgir|llir|ptx|amdgcn|json|so)\b|\.tmp\.pid_|\.py\.\d"
FILES = r"triton/(?:runtime|compiler)/|_inductor/(?:codecache|runtime)|triton_heuristics"


@log_pattern(
    r"OSError: \[Errno (?:116\] Stale file handle|(?P<busy>16)\] Device or resource busy)(?:: '(?P<path>[^'\n]+)')?"
    r"|FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<gone>[^'\n]*"
    rf"(?:{FOLDER})[^'\n]*(?:{KERNEL}|\.py)[^'\n]*)'"
    r"|\bJSONDecodeError: (?P<json>Extra data|Expecting value|Unterminated string)[^\n]*"
    rf"|ImportError: (?P<loaded>/[^\n:]*(?:{FOLDER})[^\n:]*\.so): "
    r"(?:cannot (?:stat|open) shared object|cannot read file data|(?P<cut>file too short|invalid ELF header))[^\n]*"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """See by the path or by the frames that it is the cache of kernels."""
    path = match["path"] or match["gone"] or match["loaded"] or ""
    framed = any(re.search(FILES, frame.file) for frame in record.frames[-6:])
    if not match["gone"] and not framed and not re.search(FOLDER, path):
        return
    is_cut = match["json"] or match["cut"]
    what = "half written" if is_cut else "in use by another host or rank" if match["busy"] else "gone"
    yield Finding(
        f"a file of the compile cache is {what}: {path}" if path else f"a file of the compile cache is {what}",
        (record.proof(match, "a cache that no other host or rank writes"),),
        Fix(
            "give each host, or each rank, a cache on a local disk",
            command="export TRITON_CACHE_DIR=/tmp/triton-$USER TORCHINDUCTOR_CACHE_DIR=/tmp/inductor-$USER",
            diff='+rank = os.environ["LOCAL_RANK"]   # before import torch\n'
            '+os.environ["TRITON_CACHE_DIR"] = f"/tmp/triton-{rank}"',
        ),
        record.place,
    )
