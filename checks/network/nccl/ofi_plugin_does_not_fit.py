"""NCCL's plugin for EFA (aws-ofi-nccl) does not fit the libfabric, or the NCCL, that it runs with.

## What happens

The plugin calls libfabric, which comes with the EFA installer, and NCCL calls the plugin; on a host, in a container and
in a virtual environment there can be different versions of each. What one of them does not know ends the first
communication with "unhandled system error", and the reason stands in the plugin's own NCCL WARN line:

- "NET/OFI Couldn't set FI_OPT_EFA_SENDRECV_IN_ORDER_ALIGNED_128_BYTES. RC: -92, ERROR: Protocol not available": the
  plugin was compiled with libfabric 1.18 or later, and an older one, which has no such option, is loaded.
- "NET/OFI Unable to register memory (type = 2) for device 0. RC: -22, Error: Invalid argument": NCCL 2.19 and later
  allocate the GPU's memory another way, which the libfabric of EFA installers before 1.29 cannot make synchronous.

## How to be sure

`fi_info --version` in the very environment of the ranks, the container's; `ldd` of the plugin's library shows which
libfabric it loads; NCCL and the plugin print their versions with NCCL_DEBUG=INFO.

## How to mend it

Install one EFA installer, with its libfabric and plugin, on the hosts and in the image, and let LD_LIBRARY_PATH lead to
that libfabric first. For the registration, `FI_EFA_SET_CUDA_SYNC_MEMOPS=0` suffices.

## Versions and sources

The words are those of aws-ofi-nccl 1.7 to 1.9 in reports (aws/aws-ofi-nccl#241, #584); not run here. Source: AWS
documentation, "Troubleshoot EFA and NCCL".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP322", Severity.ERROR)
SINCE = 19  # of NCCL 2, which allocates the GPU's memory by another API
VERSION = r"NCCL version 2\.(?P<minor>\d+)\.\d+"
COMPARE = "fi_info --version; find / -name 'libnccl-net*.so' 2>/dev/null | xargs -n1 ldd | grep libfabric"


@log_pattern(r"NET/OFI (?P<said>Couldn't set (?P<option>FI_OPT_\w+)\. RC: -92\b[^\n]{0,80})")
def of_an_option(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The plugin asks for what the libfabric that is loaded does not know."""
    yield Finding(
        f"the libfabric that is loaded is older than the one that NCCL's EFA plugin was built with: it has no "
        f"{match['option']}",
        (record.proof(match, "the libfabric that the plugin was built with, or a later one"),),
        Fix(
            "let the ranks load the libfabric of the plugin's own EFA installer, in the container as on the host",
            command=f"{COMPARE}\nexport LD_LIBRARY_PATH=/opt/amazon/efa/lib:/opt/amazon/efa/lib64:$LD_LIBRARY_PATH",
        ),
        record.place,
    )


@log_pattern(
    r"NET/OFI (?P<said>Unable to register memory \(type = 2\) for device \d+\. RC: -22\b[^\n]{0,80})",
    context=(VERSION,),
)
def of_memory(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Type 2 is memory of a GPU; which NCCL it is decides whether that is the known reason."""
    found = log.first(VERSION)
    known = found is not None and int(found[1]["minor"]) >= SINCE
    yield Finding(
        "EFA cannot register the GPU memory that this NCCL allocates: its libfabric is older",
        (
            record.proof(match, "a registration, with the libfabric of EFA installer 1.29 or later"),
            *((found[0].proof(found[1]),) if found else ()),
        ),
        Fix(
            "leave the setting out that fails, or install EFA installer 1.29 or later, on the hosts and in the image",
            command="export FI_EFA_SET_CUDA_SYNC_MEMOPS=0   # on all ranks",
        ),
        record.place,
        ambiguity=None
        if known
        else Ambiguity(
            (
                "NCCL is 2.19 or later, and the EFA installer older than 1.29",
                "the driver, or nvidia-peermem, does not let EFA read the memory of the GPU",
            ),
            f"{COMPARE}; python -c 'import torch; print(torch.cuda.nccl.version())'",
        ),
    )
