"""NCCL's plugin for EFA (aws-ofi-nccl) cannot reach the ranks of other hosts.

## What happens

On AWS, NCCL talks over EFA by the plugin aws-ofi-nccl. The adapters of two hosts exchange packets only where a security
group allows all traffic to itself, in both directions; the default rule "all traffic to 0.0.0.0/0" does not cover EFA,
although TCP and ping work with it. Seen as "NET/OFI Unable to insert remote address into address vector", "Request
completed with error. RC: 21" or a time-out in the first collective between hosts.

## How to be sure

`fi_pingpong -p efa -e rdm` between two hosts; `NCCL_NET=Socket torchrun ...` runs, over TCP. On one host "Only EFA
provider is supported" says merely that this kind of instance has no EFA: NCCL takes sockets.

## How to mend it

Give the hosts a security group with one inbound and one *outbound* rule of all traffic whose other side is the group
itself, put the hosts into one subnet, and use the same versions of aws-ofi-nccl and libfabric on all.

## Versions and sources

The words are those of aws-ofi-nccl in reports of 2022 and later; not run here. Source: AWS documentation, "Get started
with EFA and NCCL", step "Prepare an EFA-enabled security group".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP320", Severity.ERROR)
GROUP = "the security group lacks a rule of all traffic to itself, outbound as well as inbound"


@log_pattern(
    r"NET/OFI (?P<insert>Unable to insert remote address into address vector[^\n]{0,80})"
    r"|NET/OFI (?P<request>Request (?:\S{1,40} )?completed with error\. RC: 2[01]\b[^\n]{0,200})",
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell a peer that cannot be addressed from a transfer that failed."""
    yield Finding(
        "EFA does not accept the address of another host's rank"
        if match["insert"]
        else "a transfer over EFA to another host failed",
        (record.proof(match, "packets between the hosts, over EFA"),),
        Fix(
            "allow all traffic within the security group, in both directions",
            command="aws ec2 authorize-security-group-egress --group-id sg-ID --protocol -1 --source-group sg-ID\n"
            "aws ec2 authorize-security-group-ingress --group-id sg-ID --protocol -1 --source-group sg-ID",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                GROUP,
                "a rank of the other host has ended: read its log",
                "the hosts have different versions of aws-ofi-nccl or libfabric, or are in different subnets",
            ),
            "fi_pingpong -p efa -e rdm   # on one host; on the other: fi_pingpong -p efa -e rdm FIRST_HOST",
        ),
    )
