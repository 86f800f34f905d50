"""gloo of this torch has no transport that it could use here.

## What happens

gloo moves its data through a transport: TCP on Linux and macOS, libuv on Windows. Where the build has none for this
system, or `GLOO_DEVICE_TRANSPORT` names one that it was built without (TCP_TLS, IBVERBS), init_process_group with gloo
ends at once, on one rank as on many: "RuntimeError: makeDeviceForHostname(): unsupported gloo device" (or
makeDeviceForInterface(), where GLOO_SOCKET_IFNAME is set). Several wheels for Windows from torch 2.7 and 2.8 on were
built without libuv for gloo.

## How to be sure

The message is gloo's own. It does not speak of the network: the address was found, the transport was not.

## How to mend it

On Windows install another torch (2.6 has the transport), or train in WSL. Elsewhere `unset GLOO_DEVICE_TRANSPORT`. A
training on one GPU needs no process group at all.

## Versions and sources

Holds for torch 2.2 and later. Source: torch's GlooDeviceFactory.cpp; pytorch/pytorch#150381.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP317", Severity.ERROR)
WINDOWS = re.compile(r"(?<![\w/])[A-Za-z]:\\")


@log_pattern(r"makeDeviceFor(?:Hostname|Interface)\(\): unsupported gloo device")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The paths tell the system, and with it the way out."""
    windows = bool(WINDOWS.search(record.text))
    yield Finding(
        "gloo of this torch was built without a transport for Windows"
        if windows
        else "gloo of this torch has no such transport",
        (record.proof(match, "libuv on Windows, TCP elsewhere"),),
        Fix("install a torch whose gloo has one; a training on one GPU needs no process group", command=OTHER_TORCH)
        if windows
        else Fix("leave the choice to gloo", command="unset GLOO_DEVICE_TRANSPORT"),
        record.place,
    )


@log_pattern(r"GlooDeviceFactory::makeUVDevice\(\): interface or hostname can't be empty")
def without_a_name(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Gloo on Windows goes by the name of the computer where no interface is named."""
    yield Finding(
        "Windows gave gloo an empty name for this computer, and no interface is named",
        (record.proof(match, "a name, or GLOO_SOCKET_IFNAME"),),
        Fix(
            "name the interface as ipconfig does, or give the computer a name of plain letters, and restart it",
            command="set GLOO_SOCKET_IFNAME=Ethernet\nset MASTER_ADDR=127.0.0.1\n"
            "powershell Rename-Computer -NewName trainer1 -Restart   # hostname prints the present one",
        ),
        record.place,
    )


OTHER_TORCH = "pip install torch==2.6.0        # or: wsl --install, and train there"
