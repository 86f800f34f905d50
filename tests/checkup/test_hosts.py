"""Several hosts, really: network namespaces with faults made in them, and ``ddpdoctor check`` on each host."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import TORCHRUN, WITHOUT_JOBS, Script
from namespaces import finish, network

if TYPE_CHECKING:
    from namespaces import Done, Hosts

DDPDOCTOR = str(TORCHRUN.with_name("ddpdoctor"))
INPUT = (
    "nft add table ip t; nft 'add chain ip t i { type filter hook input priority 0; policy accept; }'; "
    "nft add rule ip t i "
)
NEW = INPUT + "iifname eth0 ct state new tcp dport != 29500 "
OTHER_CARD = "ip link add eth1 type veth peer name eth2; ip addr add 192.168.99.1/24 dev eth1; "


@dataclass(frozen=True)
class Fault:
    """What is done to which host, and what is then said first, by host 0 unless ``by`` says otherwise."""

    code: str
    words: tuple[str, ...]
    do: Mapping[int, str] = field(default_factory=dict)
    names: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    environ: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    undo: Mapping[int, str] = field(default_factory=dict)
    by: int = 0
    wait: str = "60"
    effect: str = ""
    """A check whose finding would be a mere effect."""


FAULTS = {
    "data ports dropped": Fault(
        "DDP306", ("host 1 (b) lets no connection of other hosts in", "# on b"), {1: NEW + "drop"}
    ),
    "data ports rejected": Fault("DDP306", ("host 1 (b) lets", "refused"), {1: NEW + "reject with tcp reset"}),
    "a link": Fault(
        "DDP308",
        ("host 1 (b) and host 2 (c) do not reach each other",),
        {2: INPUT + "ip saddr 10.77.0.2 ct state new drop", 1: INPUT + "ip saddr 10.77.0.3 ct state new drop"},
    ),
    "one direction": Fault(
        "DDP308", ("host 1 (b) does not reach host 2 (c)",), {2: INPUT + "ip saddr 10.77.0.2 ct state new drop"}
    ),
    "unrouted card": Fault(
        "DDP305",
        ("host 1 (b) would use eth1 (192.168.99.1)", "export GLOO_SOCKET_IFNAME=eth0   # on b"),
        {1: OTHER_CARD + "ip link set eth1 up; ip link set eth2 up"},
        environ={1: {"GLOO_SOCKET_IFNAME": "eth1"}},
        undo={1: "ip link delete eth1"},
    ),
    "card that is down": Fault(
        "DDP305",
        ("host 1 (b) would use eth1 (192.168.99.1)",),
        {1: OTHER_CARD},
        environ={1: {"GLOO_SOCKET_IFNAME": "eth1"}},
        undo={1: "ip link delete eth1"},
    ),
    "bridge of containers": Fault(
        "DDP305",
        ("host 1 (b) would use docker0 (172.17.0.1)",),
        {1: "ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up"},
        environ={1: {"GLOO_SOCKET_IFNAME": "docker0"}},
        undo={1: "ip link delete docker0"},
        effect="DDP304",
    ),
    "own name on loopback": Fault("DDP301", ("b resolves to 127.0.1.1", "host b"), names={1: {"b": "127.0.1.1"}}),
    "own name on an address of nobody": Fault(
        "DDP301",
        ("b resolves to 10.77.0.99, and no interface of this host has that address", "host b"),
        names={1: {"b": "10.77.0.99"}},
    ),
    "a bad cable": Fault(
        "DDP318",
        ("packets are lost between b and the other hosts", "had to be sent again", "# on b"),
        {1: INPUT + "iifname eth0 numgen random mod 10 '<' 2 drop"},
    ),
    "mtu": Fault(
        "DDP312",
        ("packets of more than 1400 bytes are lost between b and the other hosts", "dev eth0 mtu 1400   # on b"),
        {1: INPUT + "ip length \\> 1400 drop"},
    ),
    "large frames on some": Fault(
        "DDP312",
        ("packets of more than 1500 bytes are lost between",),
        dict.fromkeys((0, 1), "ip link set eth0 mtu 9000"),
    ),
    "two rank 0": Fault(
        "DDP366",
        ("a and b are both node rank 0, and nobody is 1",),
        environ={1: {"NODE_RANK": "0"}},
        effect="DDP356",
    ),
    "the master is another host": Fault(
        "DDP356",
        (
            "rank 0 runs on a and opens the store there, and MASTER_ADDR=10.77.0.2 is host 1 (b)",
            "MASTER_ADDR=10.77.0.1",
        ),
        environ={key: {"MASTER_ADDR": "10.77.0.2"} for key in range(3)},
        by=1,
    ),
    "equal ranks": Fault("DDP366", ("b and c are both node rank 1",), environ={2: {"NODE_RANK": "1"}}),
    "no rank 0": Fault("DDP366", ("a and b are both node rank 1",), environ={0: {"NODE_RANK": "1"}}),
    "neighbouring port": Fault(
        "DDP368", ("host 1 (b) has MASTER_PORT=29501, and host 0 (a) 29500",), environ={1: {"MASTER_PORT": "29501"}}
    ),
    "one counts more": Fault("DDP367", ("host 1 (b) counts 4 hosts, and a, c 3",), environ={1: {"NNODES": "4"}}),
    "one debugs": Fault(
        "DDP103", ("TORCH_DISTRIBUTED_DEBUG differs",), environ={1: {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}
    ),
    "IPv6 and IPv4": Fault(
        "DDP307",
        ("host 1 (b) would use fd00::2 for gloo, and a 10.77.0.1",),
        {1: "ip addr add fd00::2/64 dev eth0 nodad"},
        names={1: {"b": "fd00::2"}},
        undo={1: "ip addr delete fd00::2/64 dev eth0"},
    ),
    "another job": Fault(
        "DDP370", ("a host at 10.77.0.2", "the token of another job"), environ={1: {"DDPDOCTOR_TOKEN": "x"}}, wait="5"
    ),
    "port refused": Fault(
        "DDP355",
        ("host 1 (b) did not meet the master", "answers, and nobody listens on port 29500"),
        {0: INPUT + "ip saddr 10.77.0.2 tcp dport 29500 reject with tcp reset"},
        by=1,
        wait="4",
    ),
    "a mask that ends before the master": Fault(
        "DDP355",
        ("b has no route to the master 10.77.0.1: eth0 has 10.77.0.2/31", "dev eth0   # on b"),
        {1: "ip addr flush dev eth0; ip addr add 10.77.0.2/31 dev eth0"},
        undo={1: "ip addr flush dev eth0; ip addr add 10.77.0.2/24 dev eth0"},
        by=1,
        wait="4",
    ),
    "card to the master is down": Fault(
        "DDP355",
        ("eth0 of b, the interface to the master 10.77.0.1, is down", "set eth0 up   # on b"),
        {1: "ip link set eth0 down"},
        by=1,
        wait="4",
    ),
    "packets from an address of another network": Fault(
        "DDP355",
        ("b sends to the master 10.77.0.1 from 10.88.0.2", "dev eth0 src 10.77.0.2   # on b"),
        {1: "ip addr add 10.88.0.2/24 dev eth0; ip route replace 10.77.0.1/32 dev eth0 src 10.88.0.2"},
        undo={1: "ip addr delete 10.88.0.2/24 dev eth0"},
        by=1,
        wait="4",
    ),
    "no way back": Fault(
        "DDP355",
        ("what 10.77.0.1 answers takes no way back to 10.77.0.2", "ip route get 10.77.0.2"),
        {0: "ip route add blackhole 10.77.0.2/32"},
        undo={0: "ip route delete blackhole 10.77.0.2/32"},
        by=1,
        wait="4",
    ),
    "answers that do not arrive": Fault(
        "DDP365",
        ("10.77.0.2 asks for a connection to port 29500, and what a answers does not reach it", "# on a"),
        {1: INPUT + "ip saddr 10.77.0.1 drop"},
        wait="12",
    ),
    "unknown name": Fault(
        "DDP354",
        ("MASTER_ADDR='a' does not resolve",),
        names={1: {"a": ""}},
        environ={1: {"MASTER_ADDR": "a"}},
        by=1,
        wait="4",
    ),
}

LIKE_ANOTHER = {"card that is down", "own name on an address of nobody", "equal ranks", "no rank 0"}
"""Faults that the same check finds, in nearly the same words, as the one before them."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Yield three hosts, on one network."""
    with network(3) as made:
        yield made


@pytest.fixture
def fresh(hosts: Hosts) -> Hosts:
    """Return the hosts without faults."""
    hosts.reset()
    return hosts


def first_line(done: Done) -> str:
    """Return the first finding."""
    return next((line for line in done.out.splitlines() if line.startswith(("error", "warning", "note"))), done.said)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name in LIKE_ANOTHER else []) for name in FAULTS]
)
def test_a_fault_is_named_first_on_the_right_host(fresh: Hosts, name: str) -> None:
    """With what mends it there; the report is one, and the others say that it is."""
    fault = FAULTS[name]
    try:
        for host, script in fault.do.items():
            fresh.on(host, script)
        for host, names in fault.names.items():
            fresh.resolve(host, names)
        done = fresh.check(*WITHOUT_JOBS, "--wait", fault.wait, each=fault.environ)
    finally:
        for host, script in fault.undo.items():
            fresh.on(host, script)

    told = done[fault.by]
    assert told.status == 1, told.said
    assert fault.code in first_line(told), told.said
    for words in fault.words:
        assert words in told.out
    assert not fault.effect or fault.effect not in told.out
    if fault.by == 0 and fault.wait == "60":
        assert [each.status for each in done[1:]] == [0, 0]
        assert all("10.77.0.1 reports" in each.out for each in done[1:])


def test_a_healthy_cluster_is_told_good(fresh: Hosts) -> None:
    """With the job that runs on all hosts; in JSON, the matrix is there for programs."""
    done = fresh.check("--only", "network,rendezvous,environment", "--format", "json")
    report = json.loads(done[0].out)

    assert [each.status for each in done] == [0, 0, 0], done[0].said
    assert report["hosts"]["names"] == ["host 0 (a)", "host 1 (b)", "host 2 (c)"]
    assert {cell for row in report["hosts"]["matrix"]["rows"] for cell in row[1:]} == {"-", "ok"}
    assert {each["status"] for each in report["results"] if each["code"] == "DDP314"} == {"passed"}
    assert not report["counts"]["error"]
    assert not report["counts"]["warning"]


def to_the_first(address: str) -> str:
    """Return a script by which a host translates this address to that of the first host."""
    chain = "nft 'add chain ip n o { type nat hook output priority -100; }'"
    route = f"ip route replace {address} dev lo; "
    return f"{route}nft add table ip n; {chain}; nft add rule ip n o ip daddr {address} dnat to 10.77.0.1"


def test_a_master_behind_a_nat_is_no_fault(fresh: Hosts) -> None:
    """No interface has its address, and it leads all hosts to the first one, that one included: told good.

    Where it does not lead the first host to itself, that is told, as rank 0 comes to the store by the same address.
    """
    only = ("--only", "master-addr-of-other-host,hosts-missing,link-broken", "--skip", "DDP314")
    each = {host: {"MASTER_ADDR": "10.77.0.100"} for host in range(3)}
    for host in (1, 2):
        fresh.on(host, to_the_first("10.77.0.100"))
    apart = fresh.check(*only, each=each)
    fresh.on(0, to_the_first("10.77.0.100"))
    done = fresh.check(*only, each=each)

    assert "3 of 3 hosts met" in apart[0].out, apart[0].said
    assert "DDP356" in first_line(apart[0])
    assert [one.status for one in done] == [0, 0, 0], done[0].said
    assert "3 of 3 hosts met" in done[0].out


def test_the_logs_of_hosts_that_did_not_meet_are_put_together(fresh: Hosts, tmp_path: Path) -> None:
    """Ports far from each other: each host prints a line, and explain compares them."""
    done = fresh.check(*WITHOUT_JOBS, "--wait", "2", each={1: {"MASTER_PORT": "31001"}, 2: {"MASTER_PORT": "31001"}})
    logs = [tmp_path / f"node{number}.log" for number in range(3)]
    for path, each in zip(logs, done, strict=True):
        path.write_text(each.out)
    explained = subprocess.run(
        [sys.executable, "-m", "ddpdoctor", "explain", *logs], capture_output=True, text=True, check=False
    )

    assert "DDP368" in explained.stdout, explained.stdout
    assert "MASTER_PORT=31001" in explained.stdout


def test_who_is_absent_is_named(fresh: Hosts) -> None:
    """Host 2 was never started; the others say so, and look at each other all the same."""
    done = fresh.check(*WITHOUT_JOBS, "--wait", "4", hosts=[0, 1])

    assert "host 2 of 3 did not come" in first_line(done[0])
    assert "2 of 3 hosts met" in done[0].out


def test_another_local_rank_ends_at_once(fresh: Hosts) -> None:
    """One prober a host."""
    (done,) = fresh.check(each={1: {"LOCAL_RANK": "1"}}, hosts=[1])

    assert done.status == 0
    assert "local rank 0 looks at this host" in done.err


def launched(hosts: Hosts) -> dict[str, str]:
    """Return the variables of a shell in which nothing says where a master is."""
    by_hand = ("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK")
    return {name: value for name, value in hosts.environ(0).items() if name not in by_hand}


def test_torchrun_starts_it_in_the_place_of_the_training(fresh: Hosts) -> None:
    """Its agents hold the master's port: the hosts find each other through their store, one rank of each."""
    options = ("--nnodes=2", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_endpoint=10.77.0.1:29500")
    command = (str(TORCHRUN), *options, "--no-python", DDPDOCTOR, "check", *WITHOUT_JOBS)
    running = [fresh.start(host, *command, environ=launched(fresh)) for host in (0, 1)]
    done = [finish(process) for process in running]

    assert [each.status for each in done] == [0, 0], done
    assert "2 of 2 hosts met" in done[0].out + done[1].out
    assert sum("local rank 1: local rank 0 looks at this host" in each.err for each in done) == 2


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_mpirun_starts_it_on_each_host(fresh: Hosts) -> None:
    """As Open MPI does, whose variables say which rank this is, and not how many hosts there are."""
    agent = fresh.folder / "agent"
    enter = f"mount --bind {fresh.folder}/hosts.$number /etc/hosts && hostname $host && $*"
    agent.write_text(
        "#!/bin/sh\nhost=$1; shift; [ $host = a ] && number=0 || number=1\n"
        f'exec ip netns exec {fresh.tag}$host unshare --uts --mount sh -c "{enter}"\n'
    )
    agent.chmod(0o755)
    settings = ("plm_rsh_agent", str(agent)), ("oob_tcp_if_include", "eth0"), ("btl_tcp_if_include", "eth0")
    command = [
        *("mpirun", "--allow-run-as-root", *(word for pair in settings for word in ("--mca", *pair))),
        *("-np", "2", "--host", "a,b", "--map-by", "ppr:1:node", "-x", "MASTER_ADDR=10.77.0.1", "-x", "PATH"),
        *(DDPDOCTOR, "check", *WITHOUT_JOBS),
    ]
    done = finish(fresh.start(0, *command, environ=launched(fresh)))

    assert done.status == 0, done.said
    assert "2 of 2 hosts met" in done.out
    assert "ddpdoctor: host 1 (b) of 2: 0 findings here" in done.out


def test_a_port_that_another_program_holds_does_not_keep_them_apart(fresh: Hosts) -> None:
    """The others find the master beside it; who holds the port is named."""
    holder = fresh.start(
        0, sys.executable, "-c",
        "import socket, time; s = socket.create_server(('', 29500)); print('up', flush=True); time.sleep(60)",
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        done = fresh.check(*WITHOUT_JOBS, hosts=[0, 1], each={0: {"NNODES": "2"}, 1: {"NNODES": "2"}})
    finally:
        holder.kill()
        holder.communicate()

    assert "DDP353" in first_line(done[0]), done[0].said
    assert "2 of 2 hosts met" in done[0].out
    assert "0 findings here" in done[1].out, done[1].said


TALKS = """
import json, os, socket, sys, time
from ddpdoctor.host.process.connections import peers
open_to = [socket.create_connection((each, 29600)) for each in sys.argv[1:]]
print("connected", flush=True)
input()
for each in open_to:
    each.sendall(b"x" * 1000)
ends = time.monotonic() + 30
while not any(each.silent for each in peers([os.getpid()])) and time.monotonic() < ends:
    time.sleep(0.1)
print(json.dumps({each.peer: [each.silent, each.unacked, each.interface, each.down] for each in peers([os.getpid()])}))
"""
HEARS = """
import os, signal, socket
server = socket.create_server(("", 29600))
print("listens", flush=True)
connection, _ = server.accept()
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_host_whose_cable_is_pulled_is_told_from_one_that_sleeps(fresh: Hosts) -> None:
    """By what the kernels acknowledge: that of a host whose processes are all stopped still does."""
    hearing = [fresh.start(host, sys.executable, "-c", HEARS) for host in (1, 2)]
    try:
        for each in hearing:
            assert each.stdout is not None
            assert each.stdout.readline() == "listens\n"
        addresses = (fresh.address(1), fresh.address(2))
        talking = fresh.start(0, sys.executable, "-c", TALKS, *addresses, stdin=subprocess.PIPE)
        assert talking.stdout is not None
        assert talking.stdout.readline() == "connected\n"
        fresh.on(1, "ip link set eth0 down")
        said, err = talking.communicate("\n", timeout=60)
    finally:
        for each in hearing:
            each.kill()
            each.communicate()
    assert json.loads(said) == {
        addresses[0]: [True, 1000, "eth0", False],
        addresses[1]: [False, 0, "eth0", False],
    }, err


def test_ctrl_c_on_one_host_ends_the_others(fresh: Hosts) -> None:
    """The master's check is ended while it waits for a third host: the second one learns it, and goes."""
    running = [
        fresh.start(host, sys.executable, "-m", "ddpdoctor", "check", *WITHOUT_JOBS, "--wait", "50") for host in (0, 1)
    ]
    assert running[0].stderr is not None
    assert "1 did" in running[0].stderr.readline() or "2 did" in running[0].stderr.readline()
    os.killpg(running[0].pid, signal.SIGINT)
    done = [finish(process) for process in running]

    assert done[0].status == 130
    assert done[1].status == 1
    assert "DDP355" in first_line(done[1]), done[1].said


MODEL = """
import torch
def build(): return torch.nn.Linear(4, {out})
def batch(): return torch.randn(2, 4)
"""
OTHER_TORCH = """
import sys
class Patched:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.nn.parallel.distributed":
            sys.meta_path.remove(self)
            import importlib.util
            spec = importlib.util.find_spec(name)
            run = spec.loader.exec_module
            def exec_module(module):
                run(module)
                ours = module.DistributedDataParallel
                class Halving(ours):
                    def __init__(self, module, *args, **kwargs):
                        super().__init__(module, *args, **kwargs)
                        for each in module.parameters():
                            each.register_hook(lambda gradient: gradient * 0.5)
                module.DistributedDataParallel = Halving
            spec.loader.exec_module = exec_module
            return spec
sys.meta_path.insert(0, Patched())
"""


def test_the_small_jobs_run_over_all_hosts(fresh: Hosts, tmp_path: Path) -> None:
    """With the user's model as well; on a host whose torch is patched the gradients are wrong, and it is named."""
    (tmp_path / "model.py").write_text(MODEL.format(out=2))
    (tmp_path / "sitecustomize.py").write_text(OTHER_TORCH)
    targets = (f"--model={tmp_path}/model.py:build", f"--batch={tmp_path}/model.py:batch")
    only = ("--only", "collective-between-hosts-fails,gradients-differ-between-hosts,model-differs-between-hosts")
    two = {host: {"NNODES": "2"} for host in (0, 1)}
    healthy = fresh.check(*only, *targets, "--format", "json", hosts=[0, 1], each=two)
    report = json.loads(healthy[0].out)

    assert {each["status"] for each in report["results"]} == {"passed"}, healthy[0].said
    patched = {**two[1], "PYTHONPATH": str(tmp_path)}
    broken = fresh.check(*only, hosts=[0, 1], each={**two, 1: patched})
    assert "DDP338" in first_line(broken[0]), broken[0].said
    assert "a small model under DDP over 2 hosts leaves wrong gradients" in broken[0].out


def test_a_host_whose_link_carries_little_is_named(fresh: Hosts) -> None:
    """What b sends is limited to 20 Mbit/s: measured on b alone, each other link carries more."""
    fresh.on(1, "tc qdisc add dev eth0 root tbf rate 20mbit burst 32kbit latency 200ms")
    done = fresh.check("--only", "slow-link-between-hosts,collective-between-hosts-fails")

    assert "warning DDP917" in first_line(done[0]), done[0].said
    assert "what b sends to the other hosts goes at" in done[0].out
    assert "tc qdisc show dev eth0; ethtool eth0   # on b" in done[0].out
    assert "# on a" not in done[0].out


def test_a_model_that_one_host_builds_otherwise_is_named(fresh: Hosts, tmp_path: Path) -> None:
    """Its file is at the same path there, and another one."""
    (tmp_path / "model.py").write_text(
        "import torch, socket\n"
        "def build(): return torch.nn.Linear(4, 2 + (socket.gethostname() == 'b'))\n"
        "def batch(): return torch.randn(2, 4)\n"
    )
    targets = (f"--model={tmp_path}/model.py:build", f"--batch={tmp_path}/model.py:batch")
    done = fresh.check("--only", "model-differs-between-hosts,DDP314", *targets)

    assert "DDP141" in first_line(done[0]), done[0].said
    assert "host 1 (b) builds another model" in done[0].out


def test_folders_are_compared_between_hosts(fresh: Hosts, tmp_path: Path) -> None:
    """A copy that is not complete, a folder that one host cannot write to, and one that hosts do not share."""
    for host in range(3):
        for name in range(3 - (host == 1)):
            (tmp_path / f"data{host}").mkdir(exist_ok=True)
            (tmp_path / f"data{host}" / f"{name}.tar").write_bytes(b"x" * 10)
    (tmp_path / "own").mkdir()
    only = ("--only", "data-differs-between-hosts,save-folder-not-shared,save-folder-not-writable")
    running = [
        fresh.start(
            host, "sh", "-c", 'mount --bind "$1" "$2"; mount -t tmpfs -o "$3" t "$4"; shift 4; exec "$@"', "sh",
            str(tmp_path / f"data{host}"), str(tmp_path / "data0"), "ro" if host == 2 else "rw", str(tmp_path / "own"),
            sys.executable, "-m", "ddpdoctor", "check", *only,
            f"--data={tmp_path}/data0", f"--save-folder={tmp_path}/own",
        )
        for host in range(3)
    ]  # fmt: skip
    apart = [finish(process) for process in running]
    shared = fresh.check(*only, f"--data={tmp_path}/data2", f"--save-folder={tmp_path}")

    assert apart[2].status in (0, 1), apart[2].said
    assert "2.tar" in first_line(apart[0])
    assert "is missing on host 1 (b)" in first_line(apart[0]), apart[0].said
    assert f"host 2 (c) cannot write to {tmp_path}/own: Read-only file system" in apart[0].out
    assert "note DDP172 save-folder-not-shared: each host has a folder of its own" in apart[0].out
    assert [each.status for each in shared] == [0, 0, 0], shared[0].said
    assert "DDP172" not in shared[0].out
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".ddpdoctor")]


C10D = ("--rdzv_backend=c10d", "--rdzv_endpoint=10.77.0.1:29500")
STATIC = ("--master_addr=10.77.0.1", "--master_port=29500", "--node_rank=0")


def met_for(hosts: Hosts, script: Script, *options: tuple[str, ...]) -> list[Done]:
    """Run a check of a command that is still to be started, with these options of a rendezvous, on two hosts."""
    ends = script("import torch.distributed as dist; dist.init_process_group('gloo'); dist.barrier()")
    only = "rdzv-ids-differ,rdzv-backends-differ,missing-ranks-at-init,collective-between-hosts-fails"
    running = [
        hosts.start(
            host, DDPDOCTOR, "check", "--only", only, "--", str(TORCHRUN), "--nnodes=2", *given, ends,
            environ=launched(hosts),
        )
        for host, given in enumerate(options)
    ]  # fmt: skip
    return [finish(process) for process in running]


def test_a_command_that_would_not_meet_is_not_started(fresh: Hosts, script: Script) -> None:
    """The hosts meet where torchrun would, without it: each with another id would wait for the other in silence."""
    broken = met_for(fresh, script, (*C10D, "--rdzv_id=11"), (*C10D, "--rdzv_id=12"))

    assert "DDP380" in first_line(broken[0]), broken[0].said
    assert "host b waits under --rdzv_id=12" in broken[0].out
    assert "is not rehearsed" in broken[0].out
    assert broken[0].status == 1


def test_a_command_of_another_backend_is_not_started(fresh: Hosts, script: Script) -> None:
    """One torchrun opens a static store, the other one looks for its own kind in it: both would wait in silence."""
    broken = met_for(fresh, script, STATIC, C10D)

    assert "DDP373" in first_line(broken[0]), broken[0].said
    assert "host b waits in a rendezvous of the backend c10d" in broken[0].out
    assert "--node_rank=1   # on b" in broken[0].out
    assert "is not rehearsed" in broken[0].out


@pytest.mark.nightly
def test_a_command_that_meets_is_rehearsed_over_all_hosts(fresh: Hosts, script: Script) -> None:
    """Once the hosts have met, torchrun starts on each of them, and its ranks meet."""
    healthy = met_for(fresh, script, (*C10D, "--rdzv_id=11"), (*C10D, "--rdzv_id=11"))

    assert [each.status for each in healthy] == [0, 0], healthy
    assert "2 of 2 hosts met" in healthy[0].out
    assert "went well: 1 rank" in healthy[0].out, healthy[0].said
