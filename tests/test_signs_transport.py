# ruff: noqa: E501 - messages stand in one line, as they are printed
"""What NCCL, gloo and torch print about transport and collectives, and the check that it belongs to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ddpdoctor.check import Facet, Instrument, Role, Sign
from ddpdoctor.explain.answer import Confidence
from ddpdoctor.explain.engine import explain
from ddpdoctor.explain.needles import needles
from ddpdoctor.explain.records import Frame, Log, Record
from ddpdoctor.explain.sources import Origin
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.model import Finding

OWN = re.compile(r"DDP(112|152|211|23\d|24\d|30[134]|3[3-7]\d|607|7[123]\d)")
SIGNS = [
    (check.slug, facet) for check in load_checks() for facet in check.of(Instrument.SIGN) if OWN.fullmatch(check.code)
]
RANK = re.compile(r"\[rank(\d+)\]:(?= |\[)")


def records(text: str) -> tuple[Record, ...]:
    """Make a record of each line, and one of each block that a lone ``|`` begins its lines with."""
    blocks = re.split(r"\n(?!\|)", text.strip("\n"))
    found = []
    for number, block in enumerate(blocks, 1):
        rank = RANK.match(block)
        said = RANK.sub("", block).replace("\n|", "\n").strip()
        found.append(Record(text=said, source="log", line=number, rank=int(rank[1]) if rank else None))
    return tuple(found)


def findings(text: str) -> list[tuple[str, Role, Finding]]:
    """Show a log to every sign of this part, roles in order, what another finding explains last."""
    return findings_of(Log(records(text)))


def findings_of(log: Log) -> list[tuple[str, Role, Finding]]:
    """Show records to every sign of this part."""
    found = []
    explained: set[str] = set()
    for slug, facet in SIGNS:
        subject = facet.subject
        for record in log.records:
            if match := subject.pattern.search(record.text):  # type: ignore[attr-defined]  # a Sign
                given = {"record": record, "match": match, "log": log}
                for finding in facet.examine(**{name: given[name] for name in facet.needs}):
                    found.append((slug, subject.role, finding))  # type: ignore[attr-defined]  # a Sign
                    explained |= set(subject.explains)  # type: ignore[attr-defined]  # a Sign
    order = list(Role)
    return sorted(found, key=lambda each: (order.index(each[1]), each[0] in explained))


def first(text: str) -> str:
    """Name the check that comes first."""
    found = findings(text)
    return found[0][0] if found else ""


NCCL = "node-a:41211:41402 [1] "
TRANSPORT = [
    ("duplicate-gpu", "Duplicate GPU detected : rank 5 and rank 1 both on CUDA device e2000"),
    (
        "duplicate-gpu",
        NCCL + "init.cc:512 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000",
    ),
    ("duplicate-gpu", "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable"),
    ("no-peer-access", "RuntimeError: CUDA error: peer access is not supported between these two devices"),
    ("no-peer-access", NCCL + "transport/p2p.cc:237 NCCL WARN failed to open CUDA IPC handle : 217 peer access"),
    ("nccl-driver-incompatibility", "transport/nvls.cc:169 NCCL WARN Cuda failure 'invalid argument'"),
    ("nccl-driver-incompatibility", "transport/nvls.cc:254 NCCL WARN Cuda failure 801 'operation not supported'"),
    (
        "nccl-driver-incompatibility",
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 1",
    ),
    (
        "nccl-driver-incompatibility",
        "Last error:\n|Cuda failure 36 'API call is not supported in the installed CUDA driver'",
    ),
    ("container-same-hostid", "misc/nvmlwrap.cc:181 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: Not Found"),
    (
        "nccl-shm-too-small",
        NCCL + "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
    ),
    ("nccl-shm-too-small", NCCL + "NCCL WARN Error: failed to extend /dev/shm/nccl-mR3cJd to 9637892 bytes"),
    (
        "nccl-shm-too-small",
        "Error while creating shared memory segment /dev/shm/nccl-f (size 512), error: No space left on device (28)",
    ),
    ("nccl-shm-too-small", " 1 0x000000000008170d ncclGroupEnd()  ???:0\nfailed (exitcode: -7) local_rank: 2 (pid: 5)"),
    (
        "nccl-system-error-unspecified",
        "NCCL error in: ProcessGroupNCCL.cpp:825, unhandled system error, NCCL version 2.7.8",
    ),
    (
        "nccl-system-error-unspecified",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \n|Last error:",
    ),
    ("nccl-unhandled-cuda-unspecified", "ProcessGroupNCCL.cpp:260, unhandled cuda error"),
    ("nccl-unhandled-cuda-unspecified", "ncclUnhandledCudaError: Call to CUDA function failed.\n|Last error:\n|"),
    ("nccl-invalid-usage-unspecified", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."),
    (
        "nccl-invalid-usage-unspecified",
        "NCCL error in: c10d/NCCLUtils.hpp:219, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.20.5",
    ),
    (
        "nccl-internal-error",
        "NCCL error in: NCCLUtils.hpp:317, internal error - please report this issue to the NCCL developers, NCCL version 2.21.5",
    ),
    (
        "nccl-internal-error",
        "ncclInternalError: Internal check failed. This is either a bug in NCCL or due to memory corruption",
    ),
    (
        "nccl-comm-broken-zero-params",
        "DDP expects same model across all ranks, but Rank 7 has 12 params, while rank 3 has inconsistent 0 params.",
    ),
    (
        "nccl-no-ip-interface",
        NCCL + "NCCL WARN Net : Socket creation failed : Address family not supported by protocol",
    ),
    ("nccl-no-ip-interface", NCCL + "NCCL WARN Call to socket failed: Address family not supported by protocol"),
    ("interface-missing", NCCL + "bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found"),
    ("interface-missing", "Net : connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)"),
    (
        "interface-missing",
        "RuntimeError: [enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: enp9s0",
    ),
    ("interface-missing", "NCCL WARN no device found matching exactly ib7, verify NCCL_OOB_NET_IFNAME"),
    ("interface-unreachable", NCCL + "include/socket.h:360 NCCL WARN Call to connect failed : Connection timed out"),
    (
        "interface-unreachable",
        (
            "NCCL WARN socketPollConnect: connect to 10.0.0.3<41002> returned Connection timed out, "
            "exceeded error retry count after 35 attempts"
        ),
    ),
    (
        "interface-unreachable",
        "Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
    ),
    (
        "interface-unreachable",
        "Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: Connection timed out, remote=[10.0.0.3]:1",
    ),
    (
        "firewall-blocks-nccl-ports",
        "NCCL WARN socketStartConnect: Connect to 10.0.0.3<41002> failed : No route to host",
    ),
    ("memlock-limit", NCCL + "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory"),
    ("memlock-limit", NCCL + "misc/ibvwrap.cc:268 NCCL WARN Call to ibv_create_cq failed"),
    ("memlock-limit", NCCL + "NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory errno 12"),
    ("rdma-misconfigured", NCCL + "NCCL WARN Call to ibv_modify_qp failed with error Invalid argument errno 22"),
    (
        "rdma-misconfigured",
        NCCL + "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1",
    ),
    (
        "rdma-misconfigured",
        "NET/IB : Got completion from peer 10.0.0.3<4100> with error 12, opcode 0, len 0, vendor err 129",
    ),
    (
        "rdma-misconfigured",
        "NET/IB: Got completion from peer 10.0.0.3<4100> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0",
    ),
    ("several-nccl", "NCCL WARN Mismatched NCCL version detected : rank 3 version 21805 rank 0 version 22105"),
    ("several-nccl", "ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister"),
    (
        "nccl-not-on-windows",
        'File "D:\\\\a\\\\train.py", line 3\n|RuntimeError: Distributed package doesn\'t have NCCL built in',
    ),
    ("nccl-not-built", "RuntimeError: Distributed package doesn't have NCCL built in"),
    ("nccl-cpu-tensor", "RuntimeError: No backend type associated with device type cpu"),
    ("nccl-cpu-tensor", "RuntimeError: Tensors must be CUDA and dense"),
    ("hostname-loopback", "connect [127.0.1.1]:3210: Connection refused"),
    (
        "hostname-loopback",
        (
            "Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: Connection refused, "
            "remote=[127.0.0.1]:43021"
        ),
    ),
    ("gloo-peer-refused", "[../gloo/transport/tcp/pair.cc:799] connect [10.0.0.9]:3210: Connection refused"),
    (
        "gloo-peer-refused",
        (
            "failed to connect, willRetry=1, retry=1, retryLimit=3, rank=6, size=8, local=[10.0.0.8]:48822, "
            "remote=[10.0.0.9]:9612$x, error=SO_ERROR: Connection refused, remote=[10.0.0.9]:9612$x"
        ),
    ),
    (
        "remote-rank-died-or-network",
        "NCCL WARN Net : Call to recv from 10.0.0.9<4120> failed : Connection reset by peer",
    ),
    ("remote-rank-died-or-network", "NCCL WARN socketProgress: Connection closed by remote peer node-b<50311>"),
    (
        "remote-rank-died-or-network",
        "ncclOsSocketProgressOpt: Call to send to 10.0.0.9<4120> failed : 32 (Broken pipe)",
    ),
    ("remote-rank-died-or-network", "[/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.9]:20211"),
    (
        "remote-rank-died-or-network",
        "[/gloo/transport/tcp/pair.cc:547] Read error [10.0.0.9]:2021: Connection reset by peer",
    ),
    (
        "remote-rank-died-or-network",
        "NCCL error: remote process exited or there was a network error, NCCL version 2.21.5",
    ),
    (
        "rank0-exited-store-gone",
        '[Rank 1] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut',
    ),
    (
        "rank0-exited-store-gone",
        "recvValueWithTimeout failed on SocketImpl(fd=79, addr=[b]:51244, remote=[a]:29500): Broken pipe",
    ),
    (
        "rank0-exited-store-gone",
        (
            "[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value "
            "store by key '0', but store->get('0') got error: Connection reset by peer"
        ),
    ),
]


@pytest.mark.parametrize(("slug", "text"), TRANSPORT)
def test_each_wording_finds_its_check(slug: str, text: str) -> None:
    """The message alone, without context, is enough, in each version's wording."""
    assert first(text) == slug


HARMLESS = [
    NCCL + "NCCL INFO Call to connect returned Connection refused, retrying",
    NCCL
    + "NCCL INFO socketPollConnect: connect to 10.0.0.3<4100> returned Connection timed out, retrying (1/34) after sleep",
    NCCL + "NCCL INFO Call to ibv_query_ece failed with error Operation not supported errno 95",
    NCCL + "NCCL INFO Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, retrying 1/34",
    NCCL
    + "NCCL INFO fallocate: Failed to extend /dev/shm/nccl-a to 9 bytes, error: Interrupted system call (4) - retrying",
    NCCL + "NCCL INFO NET/IB : No device found.",
    NCCL + "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.3<0>",
    NCCL + "NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>",
    NCCL + "NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0",
    NCCL + "NCCL INFO NVLS multicast support is not available on dev 0",
    NCCL
    + "NCCL INFO Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2 : CUDA error 401. Proceeding without NVLS support.",
    NCCL + "NCCL INFO P2P is disabled between connected GPUs 1 and 0.",
    NCCL + "NCCL INFO [Service thread] Connection closed by localRank 0",
    NCCL + "NCCL INFO comm 0x55 rank 1 nranks 2 cudaDev 1 busId 21000 - Destroy COMPLETE",
    "[W socket.cpp:464] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign)",
    "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "DDP expects same model across all ranks, but Rank 1 has 488 params, while rank 0 has inconsistent 470 params.",
    "Error while creating shared memory segment /dev/shm/nccl-f (size 512), error: Permission denied (13)",
    "failed (exitcode: -7) local_rank: 2 (pid: 5)",
    (
        "failed (exitcode: -7) local_rank: 2 (pid: 5)\nRuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error.\n"
        " 1 0x0000 ncclGroupEnd()  ???:0"
    ),
    "NET/IB : Got completion from peer 10.0.0.3<4100> with status=5 opcode=0 len=0 vendor err 249",
    "ImportError: undefined symbol: cublasLtMatmul",
    "[enforce fail at device.cc:128] rp != nullptr. Unable to find address for: node-7",
    "    _save_checkpoint (lightning/model_checkpoint.py:399)",
    "Disconnected: connection closed by peer",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_words_like_them_find_nothing(text: str) -> None:
    """Retries, notices and other programs' errors name no check of this part."""
    assert findings(text) == []


def test_the_interface_is_blamed_only_where_it_is_virtual() -> None:
    """A time-out through docker0 is the interface's fault; elsewhere a firewall remains possible."""
    failed = "\nNCCL WARN socketStartConnect: Connect to {}<41002> failed : Connection timed out"
    bridges = NCCL + "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0> [1]br-05ab815fa14e:172.19.0.1<0>"
    slug, role, finding = findings(bridges + failed.format("172.19.0.7"))[0]
    assert (slug, role, finding.doubt) == ("interface-unreachable", Role.CAUSE, None)
    assert "br-05ab815fa14e (172.19.0.1)" in finding.message
    for shown in (bridges, NCCL + "NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>"):
        slug, role, finding = findings(shown + failed.format("10.0.0.3"))[0]
        assert (slug, role) == ("interface-unreachable", Role.SYMPTOM)
        assert finding.doubt is not None
        assert len(finding.doubt.causes) == 2


def test_a_bare_system_error_after_infiniband_was_chosen_is_about_infiniband() -> None:
    """The chosen network is evidence; NCCL's own WARN line is better evidence."""
    chosen = NCCL + "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:10.0.0.42<0>\n"
    error = "ncclSystemError: System call (socket, malloc, munmap, etc) failed."
    assert first(chosen + error) == "rdma-misconfigured"
    assert first(f"{chosen}{NCCL}NCCL WARN Call to posix_fallocate failed : No space left on device\n{error}") == (
        "nccl-shm-too-small"
    )


def test_what_nccl_said_besides_the_class_is_quoted() -> None:
    """An unspecified error shows the WARN line, or what stands after Last error."""
    text = "ncclUnhandledCudaError: Call to CUDA function failed.\n|Last error:\n|Cuda failure 'out of memory'"
    found = findings(text)[0][2]
    assert "Cuda failure 'out of memory'" in found.message
    assert found.doubt is None
    assert "leave room" in found.fix.summary


def test_a_warning_of_nccl_that_does_not_stop_it_explains_nothing() -> None:
    """Hosts without InfiniBand warn that its library is missing, and work."""
    text = (
        "misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\nncclSystemError: System call (socket) failed."
    )
    assert "libibverbs" not in findings(text)[0][2].message


def test_two_versions_in_one_log_explain_invalid_usage() -> None:
    """NCCL prints its version on each host."""
    error = "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."
    assert first(f"NCCL version 2.18.5+cuda12.1\nNCCL version 2.21.5+cuda12.4\n{error}") == "several-nccl"
    assert first(f"NCCL version 2.21.5+cuda12.4\nNCCL version 2.21.5+cuda12.4\n{error}") == (
        "nccl-invalid-usage-unspecified"
    )


def test_the_gpu_is_named_as_nvidia_smi_does() -> None:
    """NCCL's number becomes a PCI address."""
    found = findings("Duplicate GPU detected : rank 5 and rank 1 both on CUDA device e2000")
    assert "ranks 1 and 5" in found[0][2].message
    assert "0000:e2:00.0" in found[0][2].message


def wait(rank: int, seq: int, op: str = "ALLREDUCE", given: int = 1024, made: int = 1024) -> str:
    """Write a rank's time-out as torch 2.4 to 2.13 do."""
    return (
        f"[rank{rank}]:[E1012 04:10:20.831 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={given}, NumelOut={made}, Timeout(ms)=600000) ran for "
        "600031 milliseconds before timing out.\n"
    )


def dumped(rank: int, enqueued: int, group: int = 0) -> str:
    """Write what a rank says that was told of another one's time-out."""
    return (
        f"[rank{rank}]:[E1012 ProcessGroupNCCL.cpp:1539] [PG ID {group} PG GUID {group}(default_pg) Rank {rank}] Received a "
        "dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug info. Last enqueued "
        f"NCCL work: {enqueued}, last completed NCCL work: {enqueued}.This is most likely caused by incorrect usages\n"
    )


HEART = (
    "[rank{0}]:[E ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank {0}] ProcessGroupNCCL's watchdog got stuck "
    "for 480 seconds without making progress in monitoring enqueued collectives.\n"
)
OLD_HEART = "[rank{}]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank {}] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()={}\n"
PRINT = "CollectiveFingerPrint(SequenceNumber={}, OpType={}, TensorShape=[{}], TensorDtypes=Float)"


def mismatch(one: tuple[int, str, str], other: tuple[int, str, str], frames: str = "") -> str:
    """Write what TORCH_DISTRIBUTED_DEBUG=DETAIL raises."""
    return (
        f"Traceback (most recent call last):\n|{frames}\n|RuntimeError: Detected mismatch between collectives on ranks. Rank 1 "
        f"is running collective: {PRINT.format(*one)}, but Rank 0 is running collective: {PRINT.format(*other)}."
        "Collectives differ in the following aspects: "
    )


BAR = "Running tokenizer on dataset:  71%|███   | 71/100 [{}<04:06, 2.13 examples/s]\n"
HANGS = [
    ("collective-timeout", wait(1, 7774)),
    ("collective-timeout", "[Rank 5] Watchdog caught collective operation timeout:"),
    (
        "collective-timeout",
        (
            "[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=BROADCAST, "
            "TensorShape=[44], Timeout(ms)=1800000) ran for 1808110 milliseconds before timing out."
        ),
    ),
    ("collective-timeout", wait(0, 7774) + wait(1, 7774)),
    (
        "collective-timeout",
        "RuntimeError: [unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation to complete",
    ),
    ("slow-rank-work", BAR.format("10:02") + wait(1, 1)),
    ("slow-rank-work", "Generating train split: 2255 examples [29:59, 1.9 examples/s]" + wait(1, 2)[9:]),
    ("slow-rank-work", "got [1] ... by store->get('0') got error: Socket Timeout"),
    (
        "slow-rank-work",
        "store->get('default_pg/0//cuda//0') got error: wait timeout after 600000ms, keys: /default_pg/0",
    ),
    ("rank-divergence", wait(0, 90) + wait(1, 90, given=2048, made=2048)),
    ("rank-divergence", wait(0, 90) + wait(1, 90, "BROADCAST")),
    ("rank-divergence", wait(0, 90) + wait(1, 95)),
    ("rank-divergence", wait(0, 90) + wait(1, 90) + dumped(2, 88)),
    ("rank-divergence", "".join(OLD_HEART.format(rank, rank, size) for rank, size in ((0, 84), (1, 103), (2, 103)))),
    ("rank0-only-collective", wait(0, 90, "BROADCAST", 3, 3) + wait(1, 90) + wait(2, 90)),
    ("rank-divergent-checkpointing", wait(0, 90) + "#3 _save_checkpoint from /lib/model_checkpoint.py:399"),
    (
        "rank-divergent-checkpointing",
        (
            "Traceback (most recent call last):\n|  File '/x.py', line 1, in save_checkpoint\n|    barrier()\n|RuntimeError: "
            "Timed out waiting 1800000ms for recv operation to complete"
        ),
    ),
    ("p2p-acs-iommu-hang", NCCL + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n" + wait(0, 1) + wait(1, 1)),
    ("rank-died-or-stuck", "".join(wait(rank, 9, "_ALLGATHER_BASE", 10, 40) for rank in (0, 1, 3))),
    ("rank-died-or-stuck", "".join(wait(rank, 9, "_REDUCE_SCATTER_BASE", 30, 10) for rank in (0, 2))),
    ("rank-died-or-stuck", "RuntimeError: NCCL communicator was aborted on rank 1."),
    ("rank-died-or-stuck", "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 30000 ms"),
    ("rank-died-or-stuck", "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms"),
    ("rank-died-or-stuck", "   - [3] finished collective #41, but didn't join collective #42 (count from 1)"),
    (
        "rank-died-or-stuck",
        (
            "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting "
            "for remainder of ranks for more than 60 seconds. Stalled ops: a [ready ranks: 0, 1, 3], b [ready ranks: 0, 1, 3]"
        ),
    ),
    ("watchdog-heartbeat-stuck", HEART.format(2) + HEART.format(3)),
    ("watchdog-heartbeat-stuck", OLD_HEART.format(2, 2, 7)),
    ("teardown-hang", "{'train_runtime': 5121.4, 'train_loss': 0.81}\n" + HEART.format(2)),
    ("teardown-hang", "`Trainer.fit` stopped: `max_epochs=3` reached.\n" + HEART.format(2)),
    ("collective-order-mismatch", mismatch((17, "ALLGATHER", "64, 512"), (17, "REDUCE", "1"))),
    ("collective-order-mismatch", mismatch((17, "ALLREDUCE", "64"), (16, "ALLREDUCE", "64"))),
    (
        "collective-order-mismatch",
        "Detected mismatch between collectives on ranks. Rank 0 is running inconsistent collective: CollectiveFingerPrint(OpType=BROADCAST, TensorShape=[34112]",
    ),
    ("collective-order-mismatch", NCCL + "init.cu:1197 NCCL WARN Mismatched collective detected, please check your"),
    ("collective-shape-mismatch", mismatch((17, "ALLGATHER", "250, 128"), (17, "ALLGATHER", "251, 128"))),
    ("collective-shape-mismatch", mismatch((17, "ALLREDUCE", "3"), (17, "ALLREDUCE", "4"))),
    (
        "collective-shape-mismatch",
        NCCL + "NCCL WARN NET/Socket : peer 10.0.0.2<41> message truncated : receiving 4096 bytes instead of 2048. If",
    ),
    (
        "collective-shape-mismatch",
        "terminate called after throwing\nwhat():  [enforce fail at /gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 6 vs 4. Received data size",
    ),
    (
        "rank-died-or-stuck",
        "torch.distributed.DistStoreError: wait timeout after 4000ms, keys: /default_pg/0//1//cpu//0/0",
    ),
    ("rank-divergent-branch", mismatch((31, "ALLREDUCE", "195812480"), (31, "ALLREDUCE", "51123456"))),
    (
        "rank-divergent-logging",
        mismatch((31, "ALLREDUCE", "1"), (31, "BARRIER", ""), 'File "logger_connector/result.py"'),
    ),
    (
        "rank-divergent-checkpointing",
        "    barrier (torch/distributed/distributed_c10d.py:4551)\n    _save_checkpoint (lightning/model_checkpoint.py:399)",
    ),
    (
        "ray-actor-died",
        "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task. Check",
    ),
    ("ray-actor-died", "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."),
    (
        "ray-actor-died",
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit",
    ),
    ("uneven-batches", "RuntimeError: Detected at least one rank that exhausted inputs. Throwing across all ranks."),
    (
        "cuda-oom-one-rank",
        "[rank2]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 336.00 MiB.\n"
        + wait(0, 9)
        + wait(1, 9),
    ),
    (
        "cuda-oom-one-rank",
        (
            "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
            "n:7:9 [0] NCCL INFO [Service thread] Connection closed by localRank 2"
        ),
    ),
]


@pytest.mark.parametrize(("slug", "text"), HANGS)
def test_each_hang_finds_its_check(slug: str, text: str) -> None:
    """What the ranks' lines show together decides between checks that share a message."""
    assert first(text) == slug


@pytest.mark.parametrize(
    "text",
    [
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.",
        "".join(
            f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n" for rank in (0, 1)
        ),
        BAR.format("10:02"),
        "#3 _save_checkpoint from /lib/model_checkpoint.py:399",
        NCCL + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
        "{'train_runtime': 5121.4, 'train_loss': 0.81}",
        "Worker exit type: INTENDED_USER_EXIT Worker exit detail: Owner's worker process has crashed.",
        "ProcessGroupNCCL environments: TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC: 480, TORCH_NCCL_ENABLE_MONITORING: 1",
        "UserWarning: Using a target size (torch.Size([250])) that is different to the input size",
        "[rank0]:[W CUDAGuardImpl.h:115] using GPU 0 to perform barrier as devices used by this process are currently unknown.",
    ],
)
def test_words_beside_a_hang_find_nothing_by_themselves(text: str) -> None:
    """Context is no finding: a full GPU on all ranks, a bar, a path, a training that ended."""
    assert findings(text) == []


def test_a_group_that_ends_without_destroy_is_harmless() -> None:
    """Torch prints the warning at the end of healthy trainings too."""
    text = "WARNING: destroy_process_group() was not called before program exit, which can leak resources."
    assert [(slug, role) for slug, role, _ in findings(text)] == [("teardown-hang", Role.HARMLESS)]


@pytest.mark.parametrize(
    "text",
    [
        wait(0, 900) + wait(1, 900) + BAR.format("10:02"),  # the training was long under way
        BAR.replace(" 71%", "100%").format("10:02") + wait(1, 2),  # the bar came to its end
        wait(0, 90, "SEND") + wait(1, 90, "RECV"),  # a pair of a pipeline
        wait(0, 90) + wait(1, 90) + dumped(2, 88, group=3),  # another group counts for itself
        wait(0, 90) + wait(1, 90) + dumped(2, 95),  # it has gone on
        "".join(wait(rank, 9, "_ALLGATHER_BASE", 10, 80) for rank in (0, 1)),  # six of eight ranks are not shown
        wait(0, 90).replace("[rank0]", "[rank4]") + wait(1, 91),  # ranks of different groups
        wait(0, 96120) + wait(0, 96117) + wait(1, 64088),  # a rank of several groups
        NCCL
        + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
        + wait(0, 77)
        + wait(1, 77),  # transfers worked before
    ],
)
def test_a_time_out_without_proof_stays_undecided(text: str) -> None:
    """The causes that remain are listed, with the command that tells them apart; none is picked."""
    slug, role, finding = findings(text)[0]
    assert (slug, role) == ("collective-timeout", Role.SYMPTOM)
    assert finding.doubt is not None
    assert len(finding.doubt.causes) > 2
    assert finding.doubt.command


def test_one_story_is_told_once() -> None:
    """Eight ranks that time out make one finding, which names them."""
    found = findings("".join(wait(rank, 90) for rank in range(8)) * 3)
    assert len(found) == 1
    assert "ranks 0, 1, 2, 3, 4, 5, 6, 7 wait in collective 90" in found[0][2].message


def test_the_silent_rank_is_named() -> None:
    """A gathering collective tells how large the group is."""
    found = findings("".join(wait(rank, 9, "_ALLGATHER_BASE", 10, 40) for rank in (0, 1, 3)))
    assert found[0][2].place.rank == 2
    horovod = "are waiting for remainder of ranks for more than 60 seconds. [ready ranks: 0, 1, 3]"
    assert findings(horovod)[0][2].place.rank == 2
    newer = "are waiting for remainder of ranks for more than 60 seconds.\nMissing ranks:\n3!: [cond/HorovodAllreduce_grads_0]"
    assert findings(newer)[0][2].place.rank == 3


def test_an_earlier_cause_keeps_the_heartbeat_quiet() -> None:
    """A heartbeat that follows time-outs adds nothing."""
    assert {slug for slug, _, _ in findings(wait(0, 90) + HEART.format(0))} == {"collective-timeout"}


@pytest.mark.parametrize(("slug", "facet"), SIGNS, ids=lambda value: value if isinstance(value, str) else "")
def test_each_pattern_has_a_literal_to_search_for(slug: str, facet: Facet) -> None:
    """A gigabyte of log is searched for literal text first: each pattern needs one that is not everywhere."""
    assert isinstance(facet.subject, Sign), slug
    for pattern in (facet.subject.pattern, *facet.subject.beside):
        found = needles(pattern)
        assert found, pattern
        assert min(map(len, found)) >= 6, (pattern, found)


def test_a_collective_of_the_users_own_is_no_bucket_of_gradients() -> None:
    """Large flat tensors of different sizes are gradients only where torch or a framework reduces them."""
    text = mismatch((0, "ALLREDUCE", "40000"), (0, "ALLREDUCE", "20000")).replace("\n|", "\n")
    called = (
        Frame("/home/li/train.py", 18, "main"),
        Frame("/x/site-packages/torch/distributed/distributed_c10d.py", 9, "f"),
    )
    backward = (*called, Frame("/x/site-packages/torch/autograd/graph.py", 9, "_engine_run_backward"))
    for frames, expected in ((called, "collective-shape-mismatch"), (backward, "rank-divergent-branch")):
        record = Record(text=text, source="log", line=1, frames=frames)
        named = [slug for slug, _, _ in findings_of(Log((record,)))]
        assert named == [expected]


def test_a_refused_connection_over_loopback_is_the_interfaces_fault_on_several_hosts_only() -> None:
    """On one host loopback is where the peers are."""
    refused = "NCCL WARN Call to connect timeout : Connection refused"
    used = [
        Record(text="NCCL INFO NET : Using interface lo:127.0.0.1<0>", source="log", line=1, node=node) for node in "ab"
    ]
    failed = Record(text=refused, source="log", line=3, node="b")
    assert findings_of(Log((*used, failed)))[0][0] == "interface-unreachable"
    assert findings_of(Log((used[1], failed)))[0][0] == "remote-rank-died-or-network"


def test_a_store_that_is_gone_after_the_training_is_harmless() -> None:
    """Rank 0 leaves first; the others' last words are noise then, and a consequence before."""
    gone = "[rank1]:[W TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=67, addr=[a]:36214, remote=[b]:43145): Broken pipe"
    assert [(slug, role) for slug, role, _ in findings(gone)] == [("rank0-exited-store-gone", Role.CONSEQUENCE)]
    ended = f"{{'train_runtime': 5121.4}}\n{gone}"
    assert [(slug, role) for slug, role, _ in findings(ended)] == [("rank0-exited-store-gone", Role.HARMLESS)]


REFUSED = "[../gloo/transport/tcp/pair.cc:799] connect [127.0.0.1]:3210: Connection refused"
RAISED = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 18, in main\nValueError: bad label\n'


@pytest.mark.parametrize(
    ("log", "confidence"),
    [
        (f"  group_world_size=2\n{REFUSED}", Confidence.CERTAIN),
        (f"+ torchrun --nnodes=2 --nproc_per_node 8 train.py\n{REFUSED}", Confidence.CERTAIN),
        (f"  group_world_size=1\n{REFUSED}", Confidence.UNDECIDABLE),
        (f"+ torchrun --nnodes=1:4 train.py\n{REFUSED}", Confidence.UNDECIDABLE),
        (REFUSED, Confidence.UNDECIDABLE),
    ],
)
def test_a_loopback_peer_is_proof_only_between_hosts(log: str, confidence: Confidence) -> None:
    """On one host the same words come from a peer that ended, or from a store that outlived it."""
    answer = explain([(Origin("log"), [log.encode()])], load_checks())

    assert answer.cause is not None
    assert (answer.cause.check.slug, answer.confidence) == ("hostname-loopback", confidence)


def test_an_error_before_a_loopback_peer_comes_first() -> None:
    """After an elastic restart a rank is told the address of the one that has ended, on several hosts, too."""
    log = f"  group_world_size=2\n{RAISED}{REFUSED}"

    answer = explain([(Origin("log"), [log.encode()])], load_checks())

    assert answer.unknown is not None
    assert answer.unknown.record.error == "ValueError"
