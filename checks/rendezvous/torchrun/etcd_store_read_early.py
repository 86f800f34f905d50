"""torchrun reads from etcd what the first node has not written yet.

## What happens

torch 2.4 and later agree on the master's address through the store of the rendezvous: the agent of the first node
writes it, and the others read it (`RendezvousStoreInfo.build`). The stores of torch wait for a key. That of the
backends etcd and etcd-v2 reads its whole folder, and ended with "etcd.EtcdKeyNotFound: Key not found :
/torch/elastic/store" where nothing had been written there before; later versions of torch wait in that case, too. It is
a race: the same launch goes well now and then.

## How to be sure

The traceback goes through `rendezvous/api.py`, in build, and `etcd_store.py`. It is met by the first
start on an etcd that holds no keys of that store.

## How to mend it

Upgrade torch; or use the rendezvous that needs no etcd, `--rdzv_backend=c10d --rdzv_endpoint=HOST_OF_NODE_0:29400`; or
start again, with the same etcd.

## Versions and sources

Holds for torch 2.4 and some later versions; torch 2.13 waits (`_try_wait_get`). Source: torch/distributed/elastic/
rendezvous, api.py and etcd_store.py; reported as pytorch/pytorch#132950.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP374", Severity.ERROR)
BUILD = re.compile(r"rendezvous[/\\]api\.py\", line \d+, in build")


@log_pattern(r"etcd\.EtcdKeyNotFound: Key not found ?: (?P<key>\S+)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise by its frames that the master's address was read."""
    if not BUILD.search(record.text) or "etcd_store.py" not in record.text:
        return
    yield Finding(
        f"this node read the master's address from etcd before another had written it: {match['key']} is not there",
        (record.proof(match, "a store that waits for the key"),),
        Fix(
            "use the rendezvous of torch's own store, which waits, or a newer torch, whose etcd store waits as well",
            command="torchrun --rdzv_backend=c10d --rdzv_endpoint=HOST_OF_NODE_0:29400 --rdzv_id=$SLURM_JOB_ID "
            "--nnodes=2 ...",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the nodes started together, and this one was faster than the one that writes (a race in torch)",
                "the node that writes the address failed before, or is not there",
                "somebody removed the keys from etcd, or they ran out, while the nodes met",
            ),
            "etcdctl ls --recursive /torch/elastic   # v2; and the output of the other nodes",
        ),
    )
