"""init_method names a way to meet that torch does not have, or leaves out the host or the port.

## What happens

`init_method` is a URL: `env://`, `tcp://host:port` or `file:///path`. Another scheme, or a path or address without
one, has no handler: "No rendezvous handler for tcps://". Before 1.8 torch had none but that of `file://` on Windows,
and says it of `env://` and `tcp://` there. A Windows path makes its drive the scheme ("No rendezvous handler for
c://"). `tcp://` needs a host and a port: "hostname cannot be None", "port number missing".

## How to be sure

Print the value that is given: often it comes from a configuration or an option such as `--dist-url`.

## How to mend it

Under torchrun leave it out (`env://` is the default). By hand: `tcp://10.0.0.1:29500` with rank and world size, or
`file:///shared/path/of/a/new/file`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/distributed/rendezvous.py, `rendezvous`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP372", Severity.ERROR)


@log_pattern(r"RuntimeError: No rendezvous handler for (?P<scheme>[\w.+-]*)://")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the scheme; where it is one of torch's own, this torch is one that lacks it."""
    scheme = match["scheme"]
    if scheme in {"env", "tcp"}:
        yield Finding(
            f"this torch does not know {scheme}://: before 1.8 it met by file:// alone on Windows",
            (record.proof(match, "torch 1.8 or later, which knows it on each system"),),
            Fix(
                "install a newer torch",
                command='pip install --upgrade torch\npython -c "import torch; print(torch.__version__)"',
            ),
            record.place,
        )
        return
    yield Finding(
        f"init_method begins with {scheme}://, and torch knows env://, tcp:// and file://"
        if scheme
        else "init_method has no scheme, and torch knows env://, tcp:// and file://",
        (record.proof(match, "env://, tcp://HOST:PORT or file:///PATH"),),
        Fix(
            "leave init_method out under torchrun; else name host and port",
            diff="-dist.init_process_group(backend, init_method=url)\n+dist.init_process_group(backend)",
        ),
        record.place,
    )


@log_pattern(
    r"tcp:// rendezvous: (?P<port>port number) missing|AssertionError: hostname cannot be None"
    r"|assert result\.hostname is not None"
)
def in_part(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the part that is missing."""
    what = "port" if match["port"] else "host"
    yield Finding(
        f"the address that init_process_group is told has no {what}",
        (record.proof(match, "tcp://HOST:PORT"),),
        Fix(
            "leave init_method out under torchrun; else name host and port",
            diff="-dist.init_process_group(backend, init_method=url, rank=rank, world_size=world_size)\n"
            '+dist.init_process_group(backend, init_method="tcp://127.0.0.1:29500", rank=rank, world_size=world_size)',
        ),
        record.place,
    )
