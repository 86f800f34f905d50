"""A tensor in shared memory was removed before the process that was given its name opened it.

## What happens

With the sharing strategy `file_system` a data loader worker hands a batch on as the name of a file in /dev/shm, which
torch's manager process deletes when the worker lets go of it or ends. Whoever opens it later finds nothing: "unable to
open shared memory object </torch_310_3681426278_102> in read-write mode: No such file or directory (2)", often in the
thread that pins batches, at the end of an epoch, and then "Pin memory thread exited unexpectedly". Room in /dev/shm is
not the question. The same comes where another program empties /dev/shm: systemd does so when the last session of a user
ends (RemoveIPC), and a container of its own has another /dev/shm.

## How to be sure

`grep -rn set_sharing_strategy` in the script and its frameworks; `df -h /dev/shm` shows room. It goes with
`num_workers=0`.

## How to mend it

Use the default strategy, which hands descriptors on, with enough of them: `ulimit -n 65536`, and no
`torch.multiprocessing.set_sharing_strategy("file_system")`. Where it has to stay, `persistent_workers=False` and
`pin_memory=False` avoid the moment. On a host with logins, `loginctl enable-linger $USER`, or `RemoveIPC=no` in
/etc/systemd/logind.conf.

## Versions and sources

Holds for torch 1.8 to 2.13 on Linux. Source: PyTorch documentation, "Multiprocessing package", sharing strategies;
torch/multiprocessing/reductions.py, `rebuild_storage_filename`; logind.conf(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP187", Severity.ERROR)
CHOSEN = r"set_sharing_strategy\(\s*[\"']file_system|sharing_strategy\W{1,4}file_system"


@log_pattern(
    r"unable to open shared memory object </(?P<name>torch_\w+)> in read-write mode: No such file or directory",
    context=(CHOSEN,),
    supersedes=("dataloader-worker-crash",),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Say what was gone; who removed it is left open, the strategy first."""
    chosen = log.first(CHOSEN)
    by_name = "rebuild_storage_filename" in record.text or chosen is not None
    yield Finding(
        f"a tensor that a process shared as /dev/shm/{match['name']} was removed before this one opened it",
        (
            record.proof(match, "a file that is there until it was opened"),
            *((chosen[0].proof(chosen[1]),) if chosen else ()),
        ),
        Fix(
            "hand descriptors on in place of names, with enough of them",
            command="ulimit -n 65536   # in the shell, or the job, that starts the ranks",
            diff='-torch.multiprocessing.set_sharing_strategy("file_system")',
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the sharing strategy is file_system, and the worker let go of the batch, or ended, before"
                if by_name
                else "a worker ended before its batch was fetched",
                "something else empties /dev/shm: systemd at the end of a login (RemoveIPC), a clean-up job",
                "the processes do not share /dev/shm: they are in different containers",
            ),
            "grep -rn sharing_strategy --include=*.py .; grep -i removeipc /etc/systemd/logind.conf",
        ),
    )
