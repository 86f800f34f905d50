"""A GPU failed in hardware while the training ran.

## What happens

The CUDA call that touches it ends with "uncorrectable ECC error encountered" or "uncorrectable NVLink error"; the
driver writes an Xid into the kernel's log (48, 94, 95 and 140: memory; 74, and 144 to 150 where it says "fatal":
NVLink; 79: the GPU has fallen off the bus; 119 and 120: its firmware), or NV_ERR_RESET_REQUIRED; nvidia-smi says
"Unable to determine the device handle". The other ranks then wait for that rank until their time-out, or see the
connection closed.

## How to be sure

`sudo dmesg -T | grep -i xid` and `nvidia-smi -q -d ECC,ROW_REMAPPER` on that host; `ddpdoctor check
--only gpu` reads the counters.

## How to mend it

No change of the script does. Leave the GPU or the node out, reset it, and have it replaced if the fault
comes back.

## Versions and sources

Source: NVIDIA, "Xid Errors" and "GPU Debug Guidelines"; CUDA Runtime API, error types. Holds for all versions of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP214", Severity.ERROR)
XIDS = "48|62|64|74|79|92|94|95|119|120|121|140|142|143|158"
NVLINK = "14[4-9]|150"  # since Blackwell; most of these are no more than reports
FAULT = (
    r"uncorrectable (?:ECC|NVLink) error (?:was )?(?:encountered|detected)|cudaErrorECCUncorrectable"
    r"|[Uu]nable to determine the device handle for [Gg][Pp][Uu] ?([\w:.]+)"
    r"|(?:GPU has|NVRM:) fallen off the bus|GPU is lost"
    r"|NVRM: RmInitAdapter failed|\[NV_ERR_(?:RESET_REQUIRED|GPU_IS_LOST)\]"
    rf"|NVRM: Xid \(PCI:([\w:.]+)\): (?:(?:{XIDS})\b|(?:{NVLINK}), [^\n]{{0,80}}\b[Ff]atal\b"
    rf"|[^\n]{{0,200}}caused by previous Xid (?:{XIDS}|{NVLINK})\b)"
    r"|AER: (?:Multiple )?Uncorrect(?:ed|able) [^\n]*error received"
)

WHAT = {
    "74": "reports an error of its NVLink",
    "79": "has fallen off the bus",
    "119": "failed: its firmware (GSP) does not answer the driver",
    "120": "failed: its firmware (GSP) stopped",
}


@log_pattern(FAULT)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the GPU, where the message does."""
    gpu = match[1] or match[2]
    xid = re.search(r"Xid \([^)\n]+\): (\d+)", match[0])
    what = WHAT.get(xid[1], "failed in hardware") if xid else "failed in hardware"
    host = re.match(r"(?P<host>[A-Za-z][\w.-]*) kernel: ", record.text)  # as the system's journal begins a line
    yield Finding(
        f"GPU {gpu} {what}" if gpu else f"a GPU {what}",
        (record.proof(match, "a GPU that answers, with no uncorrectable error"),),
        Fix(
            "leave the node or the GPU out, and read the driver's messages there",
            command="sudo dmesg -T | grep -iE 'xid|fallen off'; nvidia-smi -q -d ECC,ROW_REMAPPER",
        ),
        replace(record.place, host=host["host"]) if host and record.node is None else record.place,
    )
