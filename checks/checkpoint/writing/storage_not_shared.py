"""The storage path of Ray Train is on a local disk, and workers run on several hosts.

## What happens

Ray Train writes a marker to `RunConfig(storage_path)` from the driver, and each worker looks for it there. A path on
a local disk, the default `~/ray_results` among them, is another folder on each host: "Unable to set up cluster storage
with the following settings ... A local path on the head node is not accessible by worker nodes."

## How to be sure

`stat -f -c %T PATH` says `ext2/ext3`, `xfs` or `overlayfs` for a local disk, `nfs`, `lustre` or the like for a shared
one. The message has the path, in `storage_fs_path`.

## How to mend it

    run_config = ray.train.RunConfig(storage_path="/mnt/shared/ray_results")     # or s3://bucket/ray_results

## Versions and sources

Source: ray/train/v2/_internal/execution/storage.py, `_check_validation_file`, of Ray 2.60, which runs torch.
Read, not run: it needs several hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP855", Severity.ERROR)


@log_pattern(r"Unable to set up cluster storage with the following settings")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read Ray's error, and the path in it."""
    found = re.search(r"storage_fs_path='?(?P<path>[^'\s,)]+)", record.text)
    path = found["path"] if found else "the storage path"
    yield Finding(
        f"{path} is not the same folder on all hosts: a worker does not find there what the driver has written",
        (record.proof(match, "a folder that all hosts share, or a cloud URI"),),
        Fix(
            "give a path that all hosts share",
            diff='-RunConfig(name=name)\n+RunConfig(name=name, storage_path="/mnt/shared/ray_results")  # or s3://...',
        ),
        record.place,
    )
