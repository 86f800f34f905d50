"""The processes of a TPU training do not meet: the TPU wants more of them than come, or the first one is not there.

## What happens

A TPU slice is initialised by all of its processes together. libtpu counts their addresses before it begins: "TPU
initialization failed: Invalid --..._slice_builder_worker_addresses specified. Expected 4 worker addresses, got 1". The
slice has several hosts and the command was started on one of them; or the environment names one process
(TPU_PROCESS_ADDRESSES=local, one name in TPU_WORKER_HOSTNAMES, as on Kaggle) and torch_xla, or Lightning's launcher,
starts one for each chip. "Failed to get global TPU topology" is the same on older slices.

torch_xla before 2.1 had a mesh service in the first process. "mesh_service.cc: Check failed:
impl_->channel->WaitForConnected", "Failed to connect to client mesh master: HOST:PORT" and "Failed to retrieve mesh
configuration" are of processes that did not reach it: the first one had not come, or was dead.

## How to be sure

`echo $TPU_WORKER_HOSTNAMES $TPU_PROCESS_ADDRESSES $TPU_WORKER_ID` on each host: one name for each host of the slice,
and another number on each.

## How to mend it

Start the command on all hosts of the slice. On one host, leave the number of processes to torch_xla
(`xmp.spawn(fn)`, without `nprocs`), and unset what names one process; or drive all chips from one process (SPMD).

With the mesh service, touch no XLA device before `xmp.spawn`, and read the first error of process 0.

## Versions and sources

Holds for torch_xla with torch 1.8 to 2.8; not run here. Source: torch_xla, _internal/pjrt.py and _internal/tpu.py;
Lightning-AI/pytorch-lightning#20244, google/gemma_pytorch#25, pytorch/xla#3716, pytorch/xla#2216.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP369", Severity.ERROR)
ON_ALL_HOSTS = Fix(
    "start the command on all hosts of the slice; on a single host let torch_xla choose how many processes",
    command="gcloud compute tpus tpu-vm ssh NAME --zone=ZONE --worker=all --command='PJRT_DEVICE=TPU python train.py'\n"
    "unset TPU_PROCESS_ADDRESSES TPU_WORKER_HOSTNAMES   # on a host that is alone",
    diff="-xmp.spawn(train, nprocs=8)\n+xmp.spawn(train)",
)
VARIABLES = "env | grep -E '^(TPU_|PJRT_|XRT_|CLOUD_TPU)'   # on each host of the slice"
COUNTED = Ambiguity(
    (
        "the slice has several hosts, and the command was started on one, or some, of them",
        "TPU_PROCESS_ADDRESSES or TPU_WORKER_HOSTNAMES names one process, and one is started for each chip",
        "a part of the chips is used, and the variables describe the whole slice",
    ),
    VARIABLES,
)


@log_pattern(
    r"slice_builder_worker_addresses\s+specified\.\s+Expected (?P<wants>\d+) worker addresses, got (?P<got>\d+)"
)
def of_a_slice(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The TPU's library has counted the processes that it was told of."""
    yield Finding(
        f"the TPU wants {match['wants']} processes and was told of {match['got']}: the training was not started on all "
        "hosts of the slice, or by another number of processes",
        (record.proof(match, "one address for each process of the slice"),),
        ON_ALL_HOSTS,
        record.place,
        ambiguity=COUNTED,
    )


@log_pattern(r"Failed to get global TPU topology", role=Role.GENERIC)
def of_its_topology(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A device that is held by another process ends so as well, and says it on another line."""
    yield Finding(
        "the TPU does not learn what its slice looks like: not all hosts of the slice have come",
        (record.proof(match, "one process for each part of the slice"),),
        ON_ALL_HOSTS,
        record.place,
        ambiguity=COUNTED,
    )


@log_pattern(
    r"Failed to connect to client mesh master: (?P<master>[\w.:-]{1,120})|Failed to retrieve mesh configuration"
    r"|mesh_service\.cc:\d+ : Check failed: impl_->channel->WaitForConnected",
    role=Role.GENERIC,
    waits=True,
)
def of_the_mesh(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Whoever prints it has waited for the first process."""
    where = f" at {match['master']}" if match["master"] else ""
    yield Finding(
        f"this process of the TPU does not reach the first one{where}, which describes the mesh to the others",
        (record.proof(match, "process 0 comes, and stays"),),
        Fix(
            "read the first error of process 0; make no XLA device before xmp.spawn",
            diff="-device = xm.xla_device()\n-xmp.spawn(train, args=(device,), nprocs=8)\n"
            "+xmp.spawn(train, args=(), nprocs=8)   # xm.xla_device() within train",
            command=VARIABLES,
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "process 0 failed, or was ended, and its own output says why",
                "an XLA device was made before xmp.spawn: the parent holds the TPU, and process 0 cannot start",
                "XRT_TPU_CONFIG or the address of the TPU is not set, or is another machine's",
            ),
            VARIABLES,
        ),
    )
