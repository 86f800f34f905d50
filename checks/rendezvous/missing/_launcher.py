"""A launcher that waits for other nodes: what this host sees of the place where they meet, and what its log says."""

from __future__ import annotations

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, LauncherWaits, Place, Severity

BEFORE_RANKS = r"static_tcp_rendezvous\.py"
"""Of the traceback of a torchrun that has started no rank: it waits for nodes, as it was told by --master_addr."""
EACH_NODE = Fix(
    "start torchrun on every node: the same --nnodes, --master_addr and --master_port, and --node_rank from 0 on",
    command="torchrun --nnodes=2 --node_rank=0 --master_addr=HOST0 --master_port=29500 ... train.py   # on HOST0\n"
    "torchrun --nnodes=2 --node_rank=1 --master_addr=HOST0 --master_port=29500 ... train.py   # on the other node\n"
    "torchrun --standalone ... train.py   # if there is one node alone",
)
COMPARE = (
    "ps -ww -C torchrun,python -o args= | grep -oE -e '--(nnodes|node.rank|master.[a-z]+)[= ][^ ]+'   # on each node"
)

ANSWERS = {
    "own": "they meet at {at}, which is this host, and one of them did not come yet",
    "own, node": "they meet at {at}, which is this host, and this is node {node}: node 0 alone opens a port there",
    "loopback": "they meet at {at}, which is this host itself, on each of them",
    "unknown name": "they meet at {at}, and this host does not know that name",
    "open": "{at} answers, and one of them did not come yet, or has another --rdzv_id, or others have taken the places "
    "of all (a torchrun of an earlier start, or two on one host)",
    "refused": "they meet at {at} ({addresses}), which answers, and nobody listens on that port yet",
    "filtered": "they meet at {at} ({addresses}), which does not answer",
    "unreachable": "they meet at {at} ({addresses}), to which this host has no route",
}
"""What a host sees of the place where torchrun's nodes meet."""


AGAIN = Fix(
    "start torchrun anew on the node that is gone, with the same options; or end this one, and start with as many "
    "nodes as are left",
    command="torchrun --nnodes=1:2 --max-restarts=3 ... train.py   # goes on by itself with those that are left",
)


def nodes_missing(event: LauncherWaits) -> Finding:
    """Return what is seen of the place where torchrun's nodes meet, while no rank was started, or none anew."""
    at = f"{event.host}:{event.port}"
    answer = f"{event.answer}, node" if event.answer == "own" and event.node else event.answer
    seen = ANSWERS.get(answer, "").format(at=at, addresses=", ".join(event.addresses), node=event.node)
    of_accelerate = event.launcher == "accelerate"
    name = f"{event.launcher}{' launch' if of_accelerate else ''}"
    asked = f"--num_machines {event.nodes}" if of_accelerate else f"--nnodes={event.nodes}"
    waits = f"{name} has waited {event.seconds:.0f} s for {event.nodes} nodes, and has started no rank: "
    if event.again:
        waits = f"has waited {event.seconds:.0f} s" if event.seconds else "waits"
        waits = f"the ranks of this host have ended, and {name} {waits} for {event.nodes} nodes to start anew: "
    started = "no process left" if event.again else "no process started"
    return Finding(
        waits + (seen or "one of them did not come yet"),
        (
            Evidence(f"{asked}, {started}", "all nodes join", f"pid {event.pid}, this host"),
            *([Evidence(f"{at}: {event.answer}", "the other nodes", "connect(), from this host")] if seen else ()),
        ),
        AGAIN if event.again else OF_ACCELERATE if of_accelerate else OF_TORCHRUN,
        severity=Severity.NOTE,
    )


OF_TORCHRUN = Fix(
    "start the same command on the other nodes, or leave --nnodes out where this is the only one; have the "
    "hosts meet without torchrun to see what keeps them apart",
    command="torchrun --standalone --nproc_per_node=2 train.py   # one node\n"
    "ddpdoctor check -- torchrun --nnodes=... train.py   # several: this on each, with its own options",
)
OF_ACCELERATE = Fix(
    "start the same command on the other machines, each with a --machine_rank of its own, and with the address of "
    "machine 0 that all of them reach; or ask for one machine where this is the only one, here or in the file of "
    "`accelerate config`",
    command="accelerate launch --num_machines 1 ... train.py   # one machine\n"
    "accelerate launch --num_machines 2 --machine_rank 1 --main_process_ip HOST0 ... train.py   # the second of two\n"
    "ddpdoctor check -- accelerate launch ... train.py   # several: this on each, with its own options",
)


def port_is_held(event: LauncherWaits) -> Finding:
    """Return who listens here where torchrun's nodes are to meet; a store of the user's own is a program of Python."""
    return Finding(
        f"port {event.port} of this host, where {event.nodes} nodes are to meet, is held by another program: "
        f"{event.holder}; torchrun has waited {event.seconds:.0f} s",
        (Evidence(event.holder, f"torchrun (pid {event.pid}), or nobody", f"who listens on port {event.port}"),),
        Fix(
            "end that program, or choose another port, the same on all hosts",
            command=f"ss -ltnp 'sport = :{event.port}'\n"
            f"torchrun ... --rdzv_endpoint={event.host}:{event.port + 117} train.py   # on all hosts",
        ),
        severity=Severity.NOTE if "python" in event.holder else None,
    )


def nodes_counted(proof: Evidence, came: str, wanted: str, seconds: str, where: Place) -> Finding:
    """Return how many nodes the first one's torchrun has counted before it gave up: no rank was started."""
    return Finding(
        f"{came} of {wanted} nodes came to torchrun's rendezvous within {seconds} s, and no rank was started",
        (proof,),
        EACH_NODE,
        where,
        ambiguity=Ambiguity(
            (
                "torchrun was not started on a node, or ended there at once",
                "a node has another --master_addr or --master_port, or does not reach this one",
                "two nodes have --node_rank=0, and each waits for the other",
            ),
            COMPARE,
        ),
    )


def first_node_absent(proof: Evidence, port: str, where: Place) -> Finding:
    """Return that the node of this address, which --master_addr says is the first one, has opened no port there."""
    return Finding(
        f"no torchrun with --node_rank=0 came to this host, port {port}: this one waited for it, and started no rank",
        (proof,),
        EACH_NODE,
        where,
        ambiguity=Ambiguity(
            (
                "torchrun was not started for node rank 0, or ended at once",
                "--master_addr is this host's own loopback address, and node rank 0 is on another host",
            ),
            COMPARE,
        ),
    )


def rendezvous_is_full(event: LauncherWaits) -> Finding:
    """Return which launcher of this host has the rendezvous of one node that another one has come to."""
    return Finding(
        f"torchrun has waited {event.seconds:.0f} s and started no rank: the rendezvous at {event.host}:{event.port} "
        f"is of one node, and another torchrun of this host has it: {event.holder}",
        (
            Evidence(event.holder, "nobody, or another --rdzv_id", f"who listens on port {event.port}"),
            Evidence("no process started", "a rank for each process", f"pid {event.pid}, this torchrun"),
        ),
        Fix(
            "give each job on a host a rendezvous of its own, or wait until the other one has ended",
            command="torchrun --standalone --nproc_per_node=2 train.py\n"
            f"torchrun --rdzv_backend=c10d --rdzv_endpoint={event.host}:0 --nproc_per_node=2 train.py   # also free",
        ),
    )


def agents_apart(proof: Evidence, where: Place) -> Finding:
    """Return that the torchrun of a node waited for what another node's was to tell it: no rank was started."""
    return Finding(
        "the torchrun of another node did not come, or has the same number as this one: no rank was started",
        (proof,),
        EACH_NODE,
        where,
        ambiguity=Ambiguity(
            (
                "two nodes have the same --node_rank: llamafactory-cli, swift and others take it from NODE_RANK",
                "torchrun was not started on a node, or ended there",
                "the nodes have another --nnodes, --master_addr or --master_port",
            ),
            COMPARE,
        ),
    )
