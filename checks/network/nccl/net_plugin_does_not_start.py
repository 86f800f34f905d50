"""NCCL has to use a network that does not start here: a plugin, or InfiniBand, that a variable names.

## What happens

NCCL takes the first network that starts: a plugin (libnccl-net.so, of EFA, Google's gIB or a vendor), InfiniBand, and
at last sockets, which always start. Where NCCL_NET names one, there is no other to fall back to: "Failed to initialize
any NET plugin", ncclInvalidUsage, on one host as on several. Images and module files set the variable, also for hosts
that have no such network. The lines of the plugin before it, as "OFI fi_getinfo() call failed: No data available", say
why; alone they do no harm, since NCCL then takes sockets.

EFA's plugin that finds no EFA takes whatever libfabric offers: "NET/OFI Selected Provider is tcp (found 1 nics)". NCCL
over that is slow, or ends in the plugin's next NCCL WARN line ("Creating new endpoint for domain ... failed").

## How to be sure

`env | grep NCCL_` in a rank; `NCCL_NET=Socket torchrun ...` runs. Within the container `fi_info -p efa` must list
devices of EFA, and `ibv_devinfo` those of InfiniBand.

## How to mend it

Give the container /dev/infiniband, and the plugin's folder on LD_LIBRARY_PATH; take a plugin that was built for this
NCCL. Where the host has no such network, `unset NCCL_NET NCCL_NET_PLUGIN`.

## Versions and sources

The words are those of NCCL since 2.27, in reports; not run here. Source: NCCL documentation, "NCCL_NET" and
"NCCL_NET_PLUGIN"; NCCL, src/plugin/net.cc; aws-ofi-nccl, src/nccl_ofi_net.cpp; aws/aws-ofi-nccl#803, #889
and #1020.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP348", Severity.ERROR)
NO_DEVICE = r"NET/OFI (?:OFI )?fi_getinfo\(\) call failed: No data available"
STOPPED = r"Test NCCL failure|nccl(?:Internal|System)Error|unhandled system error|internal error, NCCL version"
WENT_ON = r"Init COMPLETE|NCCL INFO Using network (?!AWS)"
PLUGIN_WARNS = r"NCCL WARN NET/OFI \S"
NOT_EFAS = "the libfabric that is loaded was built without EFA, or is not the EFA installer's"
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


@log_pattern(NO_DEVICE, context=(STOPPED, WENT_ON, r"Failed to initialize any NET plugin"))
def where_nothing_took_over(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The plugin gave up, and no other network was taken: NCCL, or the test of it, stopped there."""
    stopped = log.first(STOPPED)
    if stopped is None or log.first(WENT_ON) or log.first(r"Failed to initialize any NET plugin"):
        return
    yield Finding(
        "NCCL stopped where EFA's plugin found no device: libfabric offers none here",
        (record.proof(match, "devices that fi_info lists"), stopped[0].proof(stopped[1])),
        Fix(
            "give the container the devices of EFA",
            command="docker run --device /dev/infiniband --ulimit memlock=-1 ...\n"
            "fi_info -p efa -t FI_EP_RDM | head -5   # within it: a provider, and not -61",
        ),
        record.place,
        ambiguity=Ambiguity(
            (DEVICES, NOT_EFAS),
            "ls /dev/infiniband; fi_info -p efa | head -3; ldconfig -p | grep libfabric   # in the container",
        ),
    )


@log_pattern(
    r"NET/OFI Selected [Pp]rovider is (?P<provider>tcp|sockets|udp|net)\b[^\n]{0,60}", context=(PLUGIN_WARNS, WENT_ON)
)
def over_another_provider(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """EFA's plugin on a provider without EFA; where the group was made it is slow, and no failure."""
    warned = log.first(PLUGIN_WARNS)
    if warned is None or log.first(WENT_ON):
        return
    yield Finding(
        f"EFA's plugin found no EFA and took libfabric's provider {match['provider']}, with which it then failed",
        (record.proof(match, "NET/OFI Selected provider is efa"), warned[0].proof(warned[1])),
        Fix(
            "give the container the devices of EFA; on a host without EFA leave the plugin out",
            command="docker run --device /dev/infiniband --ulimit memlock=-1 ...\n"
            "fi_info -p efa | head -3   # in it\nexport NCCL_NET=Socket   # on hosts without EFA",
        ),
        record.place,
        ambiguity=Ambiguity(
            (DEVICES, NOT_EFAS, "FI_PROVIDER asks for another provider"),
            "ls /dev/infiniband; env | grep ^FI_; fi_info -p efa | head -3   # in the container",
        ),
    )
