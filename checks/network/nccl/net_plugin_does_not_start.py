"""NCCL has to use a network that does not start here: a plugin, or InfiniBand, that a variable names.

## What happens

NCCL takes the first network that starts: a plugin (libnccl-net.so, of EFA, Google's gIB or a vendor), InfiniBand, and
at last sockets, which always start. Where NCCL_NET names one, there is no other to fall back to: "Failed to initialize
any NET plugin", ncclInvalidUsage, on one host as on several. Images and module files set the variable, also for hosts
that have no such network. The lines of the plugin before it, as "OFI fi_getinfo() call failed: No data available", say
why; alone they do no harm, since NCCL then takes sockets.

## How to be sure

`env | grep NCCL_` in a rank; `NCCL_NET=Socket torchrun ...` runs. Within the container `fi_info -p efa` must list
devices of EFA, and `ibv_devinfo` those of InfiniBand.

## How to mend it

Give the container /dev/infiniband, and the plugin's folder on LD_LIBRARY_PATH; take a plugin that was built for this
NCCL. Where the host has no such network, `unset NCCL_NET NCCL_NET_PLUGIN`.

## Versions and sources

The words are those of NCCL since 2.27, in reports; not run here. Source: NCCL documentation, "NCCL_NET" and
"NCCL_NET_PLUGIN"; NCCL, src/plugin/net.cc; aws-ofi-nccl, src/nccl_ofi_net.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP348", Severity.ERROR)
NO_DEVICE = r"NET/OFI (?:OFI )?fi_getinfo\(\) call failed: No data available"
DEVICES = "the container is not given the devices of the network (/dev/infiniband), or this host has none"


@log_pattern(r"Failed to initialize any NET plugin", context=(NO_DEVICE,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Say what can keep a network from starting; libfabric names the one reason."""
    no_device = log.first(NO_DEVICE)
    yield Finding(
        "no network of NCCL's starts: libfabric finds no device of EFA"
        if no_device
        else "no network of NCCL's starts, and NCCL may use no other: NCCL_NET names one",
        (
            record.proof(match, "the network that NCCL_NET names, or sockets where it names none"),
            *((no_device[0].proof(no_device[1]),) if no_device else ()),
        ),
        Fix(
            "give the container the devices; where the host has no such network, leave NCCL the choice",
            command="docker run --device /dev/infiniband --ulimit memlock=-1 ...\n"
            "unset NCCL_NET NCCL_NET_PLUGIN   # or: export NCCL_NET=Socket, on one host or over TCP",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                DEVICES,
                *(
                    ()
                    if no_device
                    else (
                        "the plugin that NCCL_NET names is not on LD_LIBRARY_PATH",
                        "the plugin was built for another NCCL than the one that torch brings along",
                    )
                ),
                "an image, a module file or a profile sets NCCL_NET for a network that this host does not have",
            ),
            "env | grep ^NCCL_; fi_info -p efa | head -3; ibv_devinfo | head -3   # in the container",
        ),
    )
