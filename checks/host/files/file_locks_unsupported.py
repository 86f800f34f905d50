"""The file system on which a library locks its files has no locks.

## What happens

Libraries let one rank work while the others wait: `datasets` and `huggingface_hub` lock their caches, torch the folder
in which it builds extensions, h5py the file that it opens. On a file system without locks (NFS that is mounted without
its lock service, some FUSE and object stores, Lustre without `flock`) the call fails: "OSError: [Errno 37] No locks
available", and h5py's "unable to lock file, errno = 37" (38 and 524 say the same).

LMDB locks its table of readers, in a file beside the data: "lmdb.LockError: mdb_txn_begin: Resource temporarily
unavailable" is that lock on a file system of the network, or refused while another host has it.

## How to be sure

    flock -n ~/.cache/huggingface/x true; echo $?    # 0: there are locks

## How to mend it

Move the cache to a file system that has locks: a local disk (HF_HOME, TORCH_EXTENSIONS_DIR). Or mount with them:
Lustre with `flock`, NFS 3 with rpc.statd running. h5py reads without a lock where HDF5_USE_FILE_LOCKING=FALSE is set,
LMDB with `lock=False`; it is written for local disks.

## Versions and sources

Whatever the torch. Sources: flock(2), errors ENOLCK and ENOSYS; filelock documentation; HDF5, "File Locking"; LMDB,
"Caveats".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP181", Severity.ERROR)


@log_pattern(
    r"OSError: \[Errno 37\] No locks available(?:: '(?P<path>[^'\n]+)')?"
    r"|unable to lock file, errno = (?P<number>37|38|524)\b"
    r"|NotImplementedError: FileSystem does not appear to support flock"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell which of the libraries it is, by the message."""
    is_hdf5 = match["number"] is not None
    yield Finding(
        "the file system has no locks" + (f": {match['path']}" if match["path"] else ""),
        (record.proof(match, "a lock, for which the other ranks wait"),),
        Fix(
            "read without a lock, since no rank writes the file",
            command="export HDF5_USE_FILE_LOCKING=FALSE",
        )
        if is_hdf5
        else Fix(
            "move the caches to a disk of the host",
            command="export HF_HOME=/tmp/$USER/huggingface TORCH_EXTENSIONS_DIR=/tmp/$USER/extensions",
        ),
        record.place,
    )


@log_pattern(r"lmdb\.LockError: (?P<call>mdb_\w{1,30}): (?P<why>Resource temporarily unavailable|No locks available)")
def of_lmdb(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """LMDB's own lock is for its table of readers; who only reads does without."""
    yield Finding(
        f"LMDB gets no lock beside its data ({match['why']}): the file is on a file system of the network, or another "
        "process has it",
        (record.proof(match, "a local disk, or no lock"),),
        Fix(
            "read without a lock, since no rank writes; open it in each worker, after the fork",
            diff="-env = lmdb.open(path)\n+env = lmdb.open(path, readonly=True, lock=False, readahead=False)",
        ),
        record.place,
    )
