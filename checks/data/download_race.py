"""Every rank downloads the data set into the same folder.

## What happens

`download=True` on every rank: all see that the files are missing, all download and unpack them to the same place at
once. A rank reads an archive that another is still writing: "File not found or corrupted", a checksum that does not
match, or a truncated image many steps later. Where the data is there already, nothing happens, so that it fails on
new machines only.

## How to be sure

Delete the folder, and start the training. In source it is reported where every rank is shown to come to the line; in a
log where "not found or corrupted" comes up in a training of several processes: for certain where two of them have shown
the progress of one download.

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

from ddpdoctor.check import (
    ONE_RANK,
    Ailment,
    Ambiguity,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    given,
    is_open,
    keyword,
    lint,
    log_pattern,
)

from .._hosts.launched import SEVERAL
from .._scripts.doubts import own_disks
from .._scripts.source import is_own
from ._downloads import (
    has_one_rank_a_host,
    is_another_launchers,
    is_data_set,
    is_downloaded_before,
    is_of_ranks,
    is_one_folder,
    is_wanted,
)
from ._fetched import by_another_files, by_own_function, takes_turns

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP650", Severity.WARNING)
DOWNLOADED = r"\b100%\|\S{1,40}\| (?P<size>[\d.]+[kMG]?)/(?P=size) \[[^\]\n]{1,40}B/s\]"
CORRUPTED = r"RuntimeError: (?:Dataset|File) not found or corrupted\."


@log_pattern(CORRUPTED, context=(DOWNLOADED, SEVERAL), plain=True)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read what torchvision says of files whose checksums are wrong, or that are not there."""
    if not (log.ranks(CORRUPTED) or log.first(SEVERAL)):
        return
    bars = {found[0]: (found["size"], each, found) for each, found in log.find(DOWNLOADED)}
    sizes = [size for size, *_ in bars.values()]  # a bar that was drawn again says the same seconds
    twice = next((size for size in sizes if sizes.count(size) > 1), "")
    seen = tuple(each.proof(found, "one process downloads") for size, each, found in bars.values() if size == twice)[:2]
    yield Finding(
        f"several processes have downloaded the same {twice} to one place, and spoilt each other's files"
        if twice
        else "the data set is not there, or its files are spoilt",
        (record.proof(match, "the files as they are published"), *(seen if twice else ())),
        Fix(
            "let one rank of each node download, and the others wait; delete what is there before",
            diff="+if local_rank == 0:\n+    CIFAR10(root, download=True)\n+dist.barrier()\n"
            "-data = CIFAR10(root, download=True)\n+data = CIFAR10(root)",
        ),
        record.place,
        severity=Severity.ERROR,
        ambiguity=None
        if twice
        else Ambiguity(
            (
                "several ranks download and unpack it at once, into one folder",
                "nobody has downloaded it: root is another folder here, or download=False",
                "a download was broken off before",
            ),
            "ls -l --time-style=full-iso ROOT   # delete it, and start with one process: it works if the ranks race",
        ),
    )


@lint
def before_the_barrier(script: Script) -> Iterator[Finding]:
    """Look for a data set that one rank downloads in the same line in which the others look for it."""
    for call in script.nodes(ast.Call) if script.runs_in_ranks and is_own(script) else ():
        wanted = keyword(call, "download")
        if wanted is None or not isinstance(wanted, ast.Compare) or not is_data_set(script, call):
            continue
        if script.who(wanted) == ONE_RANK and script.all_ranks_reach(call) and not script.waits_before(call):
            yield Finding(
                "one rank downloads the data set here, and the others look for it in the same line: "
                "where it is not there yet, they raise",
                (script.seen(wanted, "a barrier between the download and this line, on the other ranks"),),
                Fix(
                    "let one rank of each node download it first, and the others wait",
                    diff=f"+if {script.code(wanted)}:\n+    {script.code(call.func)}(root, download=True)\n"
                    "+torch.distributed.barrier()",
                ),
                script.place(call),
            )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for data sets of torchvision and torchaudio that all ranks are to download."""
    if is_another_launchers(script) or has_one_rank_a_host(script, project):
        return
    for call in script.nodes(ast.Call):
        wanted, where = keyword(call, "download"), given(call, 0, "root")
        if wanted is None or not is_data_set(script, call) or not is_wanted(script, wanted):
            continue
        if takes_turns(script, call) or not (where is None or is_one_folder(script, where)):
            continue
        if is_of_ranks(script, project, call) and script.all_ranks_reach(call) and not script.waits_before(call):
            if is_downloaded_before(script, project, call):
                continue
            name = script.code(call.func)
            yield Finding(
                f"every rank downloads {name.rpartition('.')[2]} into the same folder at once",
                (script.seen(wanted, "download=True on one rank of each node, then a barrier"),),
                Fix(
                    "let one rank of each node download it, and the others wait",
                    diff=f"+if local_rank == 0:\n+    {name}(root, download=True)\n+torch.distributed.barrier()",
                ),
                script.place(call),
                ambiguity=own_disks(script, project),
            )


MANY = 99  # arguments, which no call has
FILES = {
    "torchvision.datasets.utils.download_url": (1, "root"),
    "torchvision.datasets.utils.download_and_extract_archive": (1, "download_root"),
    "urllib.request.urlretrieve": (1, "filename"),
}
"""What writes a file to where others look for it while it is written, and which argument says where."""


@lint
def of_a_file(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a file that all ranks are to download to one place."""
    if is_another_launchers(script) or has_one_rank_a_host(script, project):
        return
    own = {id(call): where for call, where in (*by_own_function(script), *by_another_files(script, project))}
    for call in (*script.calls(*FILES), *(call for call in script.nodes(ast.Call) if id(call) in own)):
        where = own.get(id(call)) or given(call, *FILES.get(script.resolve(call.func) or "", (MANY, "")))
        if where is None or script.can_differ(where) or is_open(call) or not is_of_ranks(script, project, call):
            continue
        if takes_turns(script, call):
            continue
        if not script.all_ranks_reach(call) or script.waits_before(call) or is_downloaded_before(script, project, call):
            continue
        yield Finding(
            f"every rank downloads to {script.code(where)} at once: one reads what another still writes",
            (script.seen(call, "one rank of each node, then a barrier"),),
            Fix(
                "let one rank of each node download it, and the others wait",
                diff=f"+if local_rank == 0:\n+    {script.code(call)}\n+torch.distributed.barrier()",
            ),
            script.place(call),
            ambiguity=own_disks(script, project),
        )
