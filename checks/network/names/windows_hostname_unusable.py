"""On Windows the host's name resolves to an address that cannot be used.

## What happens

Docker Desktop and VPNs add names such as kubernetes.docker.internal, and a laptop's name can stand for an interface
that is off: Windows answers with error 10049, "the requested address is not valid in its context", in the language of
the system. torch goes on to try the next address, so as a warning it needs no action. Where init_process_group itself
ends with it, no address was left.

## How to be sure

The number 10049; the training runs on after the warning.

## How to mend it

`set MASTER_ADDR=127.0.0.1`, and the gloo backend, since NCCL is not built for Windows.

## Versions and sources

Source: Windows Sockets error codes, WSAEADDRNOTAVAIL; torch/csrc/distributed/c10d/socket.cpp. Holds for torch 2.2 to
2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP315", Severity.ERROR)
FIX = Fix("use the loopback address by number", command="set MASTER_ADDR=127.0.0.1")
INVALID = r"socket has failed to (?:connect to|bind to|listen on) [^\n]*?\(system error: 10049"


@log_pattern(r"Error: The (?:client|server) " + INVALID)
def as_an_error(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the exception."""
    yield Finding(
        "the name in MASTER_ADDR stands for an address that this Windows host cannot use",
        (record.proof(match, "127.0.0.1 on one host"),),
        FIX,
        record.place,
    )


@log_pattern(INVALID + r"|network addresses of [^\n]*? cannot be retrieved \(gai error: 11001\b", role=Role.HARMLESS)
def as_a_warning(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the warning of an address that torch leaves for the next one."""
    if "Error: The" not in record.text:
        yield Finding(
            "Windows has no such address for the host's name; torch tries the next one",
            (record.proof(match, "no action while the training runs on"),),
            FIX,
            record.place,
            severity=Severity.NOTE,
        )
