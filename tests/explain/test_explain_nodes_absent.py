"""Logs of a torchrun that has waited for nodes in vain: nodes are counted there, and no rank was started."""

from __future__ import annotations

import pytest
from helpers import answered

AGENT = """\
Traceback (most recent call last):
  File "/opt/py/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/py/lib/python3.11/site-packages/torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py", line 67, in next_rendezvous
    self._store = TCPStore(
"""  # noqa: E501 - as it is printed
RANK = """\
Traceback (most recent call last):
  File "/home/li/train.py", line 6, in <module>
    dist.init_process_group("gloo")
"""
COUNTED = "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.\n"
NOT_THERE = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 900000ms while trying to connect to "
    "(127.0.0.1, 29500).\n"
)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (AGENT + COUNTED, "1 of 2 nodes came to torchrun's rendezvous within 901 s, and no rank was started"),
        (AGENT + NOT_THERE, "no torchrun with --node_rank=0 came to this host, port 29500"),
        (RANK + COUNTED, "1 of 2 ranks reached the store of rank 0 within 901 s"),
        (RANK + NOT_THERE, "rank 0 never opened the store on this host, port 29500"),
    ],
)
def test_a_launcher_that_waited_for_nodes_is_no_rank_that_waited_for_ranks(log: str, said: str) -> None:
    """The same messages of torch's store mean nodes where torchrun prints them, before it has started a rank."""
    first = answered(log).named[0]

    assert first.check.slug == "missing-ranks-at-init"
    assert first.finding.message.startswith(said)
