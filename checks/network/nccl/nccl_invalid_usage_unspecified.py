"""NCCL reports invalid usage and does not say what is invalid.

## What happens

NCCL returns "invalid usage" (ncclInvalidUsage) when two ranks of one host use the same GPU, when the ranks have
different versions of NCCL, when NCCL_SOCKET_IFNAME matches no interface, and when the calls of a group do not fit
together. The reason is in the NCCL WARN line before it, which NCCL prints with NCCL_DEBUG=WARN or INFO, and since
NCCL 2.14 also after "Last error:". Older versions give only the exception.

## How to be sure

Run again with `NCCL_DEBUG=WARN` and read the first NCCL WARN line of any rank. Without a second run: more ranks than
GPUs on a host is by far the most frequent reason. ddpdoctor reports this finding only where the log does not name the
reason; it quotes the WARN line where there is one.

## How to mend it

The WARN line decides which of these applies; the most frequent is first:

- Two ranks use the same GPU: call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before the first collective,
  and start at most as many ranks on a host as it has GPUs.
- NCCL_SOCKET_IFNAME matches no interface: correct it after `ip -brief address`, or unset it (interface-missing).
- Versions differ: install one torch build on all hosts, and compare `torch.cuda.nccl.version()` with the library that
  LD_LIBRARY_PATH leads to.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: NCCL, places that return ncclInvalidUsage in versions 2.7 to 2.30.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Role, Severity, log_pattern

from ._nccl import NAMED, WARN, says_more, unspecified

AILMENT = Ailment("DDP333", Severity.ERROR)
CAUSES = (
    "two ranks of a host use the same GPU",
    "another NCCL library is loaded than the one torch was built with, or the hosts have different ones",
    "NCCL_SOCKET_IFNAME matches no interface",
)

BY_VLLM = r"POST /(?:init_communicator|update_named_param|collective_rpc)\b|vLLM is using nccl==|\binit_communicator\("
SHARED_BY_VLLM = (
    "the trainer, which joins the group of vLLM's workers to send weights, uses a GPU that one of them uses"
)
WHO = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,name --format=csv   # on which GPU each of both is"
APART = Fix(
    "give vLLM's server and the trainer GPUs of their own: a group of NCCL takes each GPU once",
    command="CUDA_VISIBLE_DEVICES=0,1 trl vllm-serve --tensor-parallel-size 2 --model MODEL\n"
    "CUDA_VISIBLE_DEVICES=2,3 accelerate launch --num_processes=2 train.py",
)
ARGUMENT = (
    "a rank is not below the number of ranks: more processes were started than the script's world size",
    "two ranks of a host use the same GPU",
    "another NCCL library is loaded than the one torch was built with",
)


@log_pattern(
    r"\binvalid usage(?: \(run with [^)\n]*\))?, NCCL version|NCCL error: invalid usage\b"
    r"|NCCL Error 5: invalid usage|ncclInvalidUsage: This usually reflects invalid usage"
    r"|NCCL error in: [^\n]{1,200}?, (?P<argument>invalid argument)(?: \(run with [^)\n]*\))?, NCCL version",
    role=Role.GENERIC,
    context=(WARN, BY_VLLM),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report the class, with the WARN line where there is one."""
    what, causes = ("an invalid argument", ARGUMENT) if match["argument"] else ("invalid usage", CAUSES)
    named = NAMED if says_more(record, log) else causes
    finding = unspecified(f"NCCL refused a call as {what}", named, record, match, log)
    vllm = log.first(BY_VLLM)
    if match["argument"] or vllm is None:
        yield finding
        return
    yield replace(
        finding,
        evidence=(*finding.evidence, vllm[0].proof(vllm[1], "GPUs that the trainer does not use")),
        fix=APART,
        ambiguity=Ambiguity((SHARED_BY_VLLM, *causes[1:]), WHO),
    )
