"""Logs of a file or folder that a process was to delete or rename, and that another one took away before."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Finding, Fix, Log, Record

from ...._hosts.launched import REMOVING, SEVERAL
from ...._hosts.ranks_of_hosts import beyond_first_host

if TYPE_CHECKING:
    from collections.abc import Sequence

PATHS = r"'(?P<path>[^'\n]+)'(?: -> '(?P<target>[^'\n]+(?:\n[^'\n\s]+)?)')?"
GONE = rf"(?:FileNotFoundError: \[(?:Errno 2|WinError [23])\]|OSError: \[Errno 39\]) [^:\n]+: {PATHS}"
FULL = re.compile(r"\[Errno 39\]")
LINKS = re.compile(r"\b(?:sym)?link(?:_to)?\(")  # their errors name two paths as well
LISTED = re.compile(r"\bin _rmtree_\w+\n(?:[^\n]*\n)?|\bos\.(?:unlink|rmdir)\((?:entry\.name|fullname|name), dir_fd=")
LOOKED_UP = re.compile(r"\bos\.lstat\b")  # of the folder itself, before anything in it is deleted
MADE_BEFORE = re.compile(
    r"(?:^|[./\\_-])(?:te?mp|incomplete|partial?|staging|downloading)(?:[._-][^/\\]*|\d*)?$|\.tmp\w*$|~$"
)
"""The name of a file that its own program has written just before it renames it."""
COMPILED = re.compile(
    r"[/\\](?:\.?triton|torchinductor\w*|inductor)[/\\]"
)  # what compilers keep is no file of the training
OF_TRAINER = re.compile(r"(?:^|[/\\])tmp-checkpoint-\w+$")
TRAINER = re.compile(r"[/\\]transformers[/\\]trainer\.py")
ALONE = "another process of the training does the same: any rank, or the first one of another host"
RUN = "another run uses the same folder"
NEVER = "it was never written: an error above tells why"
BEFORE = "a run before has left it"
FIX = Fix(
    "let rank 0 prepare the path, and the others wait",
    diff="-os.makedirs(path)\n+if rank == 0:\n+    os.makedirs(path, exist_ok=True)\n+torch.distributed.barrier()",
)
OF_ONE = Fix(
    "let global rank 0 alone delete and rename files: the first process of each host has LOCAL_RANK 0",
    diff='-if int(os.environ["LOCAL_RANK"]) == 0:\n+if torch.distributed.get_rank() == 0:\n     rotate(folder)',
)
RENAMES = Fix(
    "let rank 0 alone write and rename it, and the others wait; or let each process write to a name of its own",
    diff="-part = path + '.tmp'\n+part = f'{path}.{os.getpid()}.tmp'\n write(part)\n os.replace(part, path)",
)
UPGRADE = Fix(
    "take a transformers whose processes do not all rename the folder: 4.36 to 4.38 do, and 4.49 before its release",
    command="pip install -U transformers",
)
ROTATES = Fix(
    "let the Trainer keep its old checkpoints, or delete them on one process: where hosts share the disk, one host's",
    command="grep -rnE 'save_total_limit|save_on_each_node|load_best_model_at_end' .   # no limit, and False",
)


def raced(record: Record, match: re.Match[str], log: Log) -> Finding | None:
    """Return what is said of a path that was gone, or full, for who was to delete or rename it."""
    if COMPILED.search(match["path"]):
        return None
    if match["target"]:
        return _renamed(record, match, log) if not LINKS.search(record.text) else None
    removing = re.search(REMOVING, record.text)
    return None if removing is None else _removed(record, match, removing, log)


def _removed(record: Record, match: re.Match[str], removing: re.Match[str], log: Log) -> Finding | None:
    ranks = sorted(log.ranks(GONE))
    if FULL.search(match[0]):
        return _filled(record, match, ranks)
    if LISTED.search(record.text) and not LOOKED_UP.search(record.text):
        return _removed_while_listed(record, match, ranks)
    if not ranks and log.first(SEVERAL):
        return _removed_by_several(record, match, removing, OF_ONE)
    if not ranks or 0 in ranks:
        return None
    return Finding(
        f"{match['path']} is gone for {_words(ranks)}, which was to delete or rename it",
        (record.proof(match, "one rank deletes it"), record.proof(removing, "rank 0 alone")),
        FIX,
        record.place,
        ambiguity=_of_hosts(match, log, ranks),
    )


def _words(ranks: Sequence[int]) -> str:
    return f"rank {', '.join(map(str, ranks))}" if ranks else "a process"


def _of_hosts(match: re.Match[str], log: Log, ranks: Sequence[int]) -> Ambiguity | None:
    if len(log.nodes) <= 1 and not beyond_first_host(log, ranks):
        return None
    return Ambiguity(
        (
            "another rank has deleted or renamed it before",
            "another host has made it, on a disk of its own that this one does not see",
        ),
        f"df {_folder(match['path'])}   # on each host: a file system of the network is shared",
    )


def _folder(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or "."


def _renamed(record: Record, match: re.Match[str], log: Log) -> Finding | None:
    """A file that was written under a passing name, and was renamed by somebody else; or whose new name is taken."""
    path, target, ranks = match["path"], match["target"].replace("\n", ""), sorted(log.ranks(GONE))
    of_trainer, full = OF_TRAINER.search(path) is not None, FULL.search(match[0])
    launched = bool(ranks) or log.first(SEVERAL) is not None
    if not (of_trainer or full or launched or MADE_BEFORE.search(path)):
        return None
    others = ranks and 0 not in ranks
    hosts = _of_hosts(match, log, ranks) if others else None
    taken = (ALONE, BEFORE) if full else (ALONE, RUN, NEVER)
    apart = () if _folder(path) == _folder(target) or full else (f"there is no folder {_folder(target)}",)
    open_ones = Ambiguity(
        (*taken, *apart),
        f"ls -ld --time-style=full-iso {_folder(target)} {target}   # older than this start: left over",
    )
    return Finding(
        f"{target} is there already, and not empty, when {_words(ranks)} renames {path} to it"
        if full
        else f"{path} is gone for {_words(ranks)}, which was to rename it to {target}",
        (record.proof(match, "one process of the training renames it"),),
        UPGRADE if of_trainer else RENAMES,
        record.place,
        ambiguity=hosts if of_trainer or others else open_ones,
    )


def _removed_while_listed(record: Record, match: re.Match[str], ranks: Sequence[int]) -> Finding:
    """shutil.rmtree lists a folder, and deletes what it has seen there: an entry that is gone was deleted meanwhile."""
    return Finding(
        f"{match['path']} is gone while {_words(ranks)} deletes the folder that it lay in: "
        "another process deletes the same folder",
        (record.proof(match, "one process of the training deletes it"),),
        ROTATES if TRAINER.search(record.text) else OF_ONE,
        record.place,
        ambiguity=Ambiguity(
            (ALONE, RUN), "grep -rnE 'rmtree|unlink|os.remove' --include=*.py .   # under which test of the rank"
        ),
    )


def _filled(record: Record, match: re.Match[str], ranks: Sequence[int]) -> Finding:
    """A folder that was emptied, and into which somebody wrote before it was removed."""
    return Finding(
        f"{match['path']} is not empty when {_words(ranks)} has deleted what it saw there",
        (record.proof(match, "nobody writes into a folder that is deleted"),),
        ROTATES if TRAINER.search(record.text) else OF_ONE,
        record.place,
        ambiguity=Ambiguity(
            (
                "another process of the training writes into it, or makes it anew, at that moment",
                "it lies on NFS, and a process of this host still has a file of it open (.nfs...)",
            ),
            f"ls -la {match['path']}; lsof +D {match['path']}",
        ),
    )


def _removed_by_several(record: Record, match: re.Match[str], removing: re.Match[str], fix: Fix) -> Finding:
    """Return that a path was gone which one process of a launch was to delete or rename; its rank is not known."""
    return Finding(
        f"{match['path']} is gone for a process that was to delete or rename it",
        (record.proof(match, "one process of the training deletes or renames it"), record.proof(removing, "")),
        fix,
        record.place,
        ambiguity=Ambiguity(
            (ALONE, RUN, NEVER),
            f"grep -rn {removing[0].split()[-1].strip('(')} --include=*.py .   # under which test of the rank",
        ),
    )
