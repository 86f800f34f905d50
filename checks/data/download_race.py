"""Every rank downloads the data set into the same folder.

## What happens

`download=True` on every rank: all see that the files are missing, all download and unpack them to the same place at
once. A rank reads an archive that another is still writing: "File not found or corrupted", a checksum that does not
match, or a truncated image many steps later. Where the data is there already, nothing happens, so that it fails on
new machines only.

## How to be sure

Delete the folder, and start the training. Reported where every rank is shown to come to the line.

## How to mend it

Let one rank of each node download, and the others wait.

    if local_rank == 0:
        CIFAR10(root, download=True)
    dist.barrier()
    data = CIFAR10(root, download=False)

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torchvision/datasets/utils.py, `download_url` writes to
the final path.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, given, keyword, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP650", Severity.WARNING)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for data sets of torchvision and torchaudio that all ranks are to download."""
    if not script.joins or script.frameworks:
        return
    for path, calls in script.all_calls().items():
        if not re.match(r"(torchvision|torchaudio)\.datasets\.[A-Z]", path) or path.endswith("FakeData"):
            continue
        for call in calls:
            wanted = keyword(call, "download")
            where = given(call, 0, "root")
            if not isinstance(wanted, ast.Constant) or wanted.value is not True or (where and script.can_differ(where)):
                continue
            if script.all_ranks_reach(call) and not script.waits_before(call):
                yield Finding(
                    f"every rank downloads {path.rpartition('.')[2]} into the same folder at once",
                    (script.seen(wanted, "download=True on one rank of each node, then a barrier"),),
                    Fix(
                        "let one rank of each node download it, and the others wait",
                        diff="+if local_rank == 0:\n"
                        f"+    {script.code(call.func)}(root, download=True)\n+torch.distributed.barrier()",
                    ),
                    script.place(call),
                )
