# ruff: noqa: E501 - messages stand in one line, as they are printed
"""What trainings of others printed, with other hosts, paths and numbers: the first answer, or none at all."""

from __future__ import annotations

import pytest

from ddpdoctor.explain.engine import explain
from ddpdoctor.explain.sources import Origin
from ddpdoctor.registry import load_checks

CHECKS = load_checks()
NAMED = [
    (
        "interface-unreachable",
        """\
trainer-3:71:188 [1] NCCL INFO Bootstrap : Using eth0:10.4.0.13<0>
trainer-3:71:188 [1] misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to 10.4.0.11<40113> failed : Software caused connection abort
trainer-3:71:188 [1] NCCL INFO bootstrap.cc:270 -> 2
trainer-3:71:190 [1] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer 10.4.0.11<51111>
""",
    ),
    (
        "interface-unreachable",
        """\
n1:9:40 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>
n1:9:40 [0] misc/socket.cc:538 NCCL WARN socketPollConnect: exceeded timeouts (4)
""",
    ),
    (
        "remote-rank-died-or-network",
        "n1:9:40 [0] misc/socket.cc:535 NCCL WARN socketPollConnect: exceeded retries (20000)\n",
    ),
    (
        "rdma-misconfigured",
        "h7:19:82 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer fe80::a1%ib0<53249> with error 4, opcode 1, len 0, vendor err 81 (Send)\n",
    ),
    (
        "rdma-misconfigured",
        "h7:19:82 [1] transport/net_ib/p2p.cc:688 NCCL WARN NET/IB: Got completion from peer 10.0.0.7<53249> with status=IBV_WC_REM_ACCESS_ERR(10) opcode=IBV_WC_RDMA_WRITE(1) vendor_err=136 (Send) hca mlx5_0\n",
    ),
    (
        "no-peer-access",
        "node4:530:541 [0] NCCL INFO NCCL version 2.28.9+cuda12.4\nnode4:530:541 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 101 'invalid device ordinal'\n",
    ),
    (
        "cuda-oom",
        """\
g21:302:604 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer g21-ib<51159>
g21:302:604 [0] proxy.cc:1143 NCCL WARN Socket recv failed while polling for opId=0x55a5
g21:303:605 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'
g21:303:605 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes
""",
    ),
    (
        "collective-timeout",
        "[rank5]:[E601 11:02:03.1 ProcessGroupNCCL.cpp:681] [Rank 5] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n",
    ),
    (
        "slow-rank-work",
        """\
[default0]:Packing samples:  11%|#         | 62000/560101 [03:12<25:38, 323.01 examples/s][default1]:[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught
collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600888 milliseconds before timing out.
""",
    ),
    (
        "host-oom-sigkill",
        "Epoch 3/9\nmpirun noticed that process rank 5 with PID 0 on node worker-2 exited on signal 9 (Killed).\n",
    ),
    ("host-oom-sigkill", "epoch 1\nsrun: error: gpu-04: task 3: Killed\nsrun: Terminating StepId=4711.0\n"),
    (
        "host-oom-sigkill",
        "Apr 02 03:04:05 gpu-04 kernel: python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n",
    ),
    (
        "host-oom-sigkill",
        "kernel: Killed process 198 (python) total-vm:24680216kB, anon-rss:23466112kB, file-rss:1820kB\n",
    ),
    ("worker-segfault", "srun: error: gpu-04: tasks 1,3: Segmentation fault (core dumped)\n"),
    (
        "rank-died-or-stuck",
        "2019-07-30 06:41:52: W op_kernel.cc:1318] OP_REQUIRES failed at mpi_ops.cc:422 : Aborted: Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks finished execution.\n",
    ),
    (
        "remote-rank-died-or-network",
        "An MPI communication peer process has unexpectedly disconnected.  This\nusually indicates a failure in the peer process (e.g., a crash or\notherwise exiting without calling MPI_FINALIZE first).\n",
    ),
    (
        "compute-mode",
        "[rank1]: RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n",
    ),
    (
        "windows-hostname-socket",
        "[W ..\\\\torch\\\\csrc\\\\distributed\\\\c10d\\\\socket.cpp:601] [c10d] The IPv6 network addresses of (DESKTOP 7, 55890) cannot be retrieved (gai error: 11001 - ?).\n",
    ),
    (
        "gpu-hardware-fault",
        "[Mon Feb  2 09:52:01 2026] NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ kernel_channel.c:2874\n",
    ),
    (
        "gpu-hardware-fault",
        "Feb 02 09:52:01 gpu-04 kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=1818, name=python3, Ch 00000001 caused by previous Xid 149\n",
    ),
    (
        "gpu-hardware-fault",
        "[  843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:26b5) installed in this system has\n               NVRM: fallen off the bus and is not responding to commands.\n",
    ),
    (
        "port-in-use",
        "RuntimeError: The server socket has failed to listen on any local network address.\nport: 29555\nuseIpv6: 0\ncode: -98\nname: EADDRINUSE\nmessage: address already in use\n",
    ),
    (
        "rendezvous-incomplete",
        """\
Traceback (most recent call last):
  File "fit.py", line 11, in <module>
    torch.distributed.init_process_group(backend="nccl", world_size=4)
  File "/env/lib/python3.8/site-packages/torch/distributed/rendezvous.py", line 166, in _env_rendezvous_handler
    raise _env_error("MASTER_ADDR")
""",
    ),
    (
        "p2p-acs-iommu-hang",
        """\
n3:77 NCCL DIAG === NCCL Diagnostics ===
n3:77 NCCL DIAG [INFO] p2p: write mismatch srcRank=0 srcCudaDev=0 srcNvmlDev=0 dstRank=3 dstCudaDev=3 dstNvmlDev=3 path=PHB handle=legacyIpc expected=0x01 got=0x00 verify=0x00; check ACS
n3:77 NCCL DIAG [INFO] p2p: only 11/12 GPU-to-GPU peer accesses passed verification
""",
    ),
    ("p2p-acs-iommu-hang", "n3:77 NCCL DIAG [INFO] p2p: 11/12 directed GPU P2P edges verified\n"),
    (
        "no-peer-access",
        "n3:77 NCCL DIAG [INFO] p2p: peer-memory import failed srcRank=0 srcCudaDev=0 srcNvmlDev=0 dstRank=3 dstCudaDev=3 dstNvmlDev=3 path=PHB handle=cuMem reason=import\n",
    ),
    ("cuda-oom", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 16.\n"),
    (
        "nccl-unhandled-cuda-unspecified",
        "b7:72:457 [1] enqueue.cc:58 NCCL WARN Cuda failure 'named symbol not found'\nb7:72:457 [1] NCCL INFO init.cc:1475 -> 1\n",
    ),
    ("worker-segfault", "Process finished with exit code 139 (interrupted by signal 11:SIGSEGV)\n"),
    (
        "worker-segfault",
        "Jun 07 03:04:05 gpu-04 kernel: pt_main_thread[33417]: segfault at 656c6c6f ip 000055d2685 sp 00007ffff2eea error 4 in libtorch_cpu.so[55d268550000+1000]\n",
    ),
    (
        "rank-died-or-stuck",
        """\
RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.
 Original exception:
[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 60000ms for recv operation to complete
""",
    ),
    ("collective-timeout", "[rank1]: RuntimeError: Application timeout caused pair closure\n"),
    (
        "missing-ranks-at-init",
        "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for workers. 3/4 workers joined.\n",
    ),
]
HEALTHY = [
    "b7:72:457 [1] enqueue.cc:47 NCCL WARN Cuda failure 'named symbol not found'\nb7:72:457 [1] NCCL INFO comm 0x55 rank 1 nranks 2 cudaDev 1 - Init COMPLETE\n",
    "[3138705.607699] nginx[33417]: segfault at 656c6c6f ip 000055d2685 sp 00007ffff2eea error 4 in nginx[55d268550000+1000]\n",
    "n3:77 NCCL DIAG === NCCL Diagnostics ===\nn3:77 NCCL DIAG [OK]   p2p: verified P2P access in both directions between every GPU pair (56 peer accesses)\nn3:77 NCCL DIAG [OK]   p2p: all 56 directed GPU P2P edges verified\n",
    "gpu-04 kernel: NVRM: Xid (PCI:0000:dc:00): 149, pid='<unknown>', name=<unknown>, NETIR_LINK_EVT Nonfatal XC0 i0 Link 09\n",
    "n1:9:40 [0] NCCL INFO Call to connect returned Connection refused, retrying\nn1:9:40 [0] NCCL INFO comm 0x55 rank 0 nranks 2 - Init COMPLETE\n",
    "h7:19:82 [1] NCCL TRACE Got completion from peer 10.0.0.7<53249> with status=0 opcode=1 len=0 wr_id=7 r=0x7 type=1 events={0,0}, i=0\n",
    "Tokenizing: 100%|##########| 560101/560101 [03:12<00:00, 2917.01 examples/s]\n{'loss': 2.1, 'epoch': 0.1}\n",
    'supra:402:402 [0] src/init.cc:179 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!\nsupra:402:402 [0] NCCL INFO Init COMPLETE\n',
]


@pytest.mark.parametrize(("slug", "log"), NAMED)
def test_the_first_answer_is_the_cause(slug: str, log: str) -> None:
    """A message in another version's wording, layout or company leads to the same check."""
    answer = explain([(Origin("log"), [log.encode()])], CHECKS)
    assert slug == (answer.first.check.slug if answer.first else "")


@pytest.mark.parametrize("log", HEALTHY)
def test_nothing_is_named_where_nothing_failed(log: str) -> None:
    """Words of failures stand in outputs of healthy trainings, too."""
    answer = explain([(Origin("log"), [log.encode()])], CHECKS)
    assert (answer.cause and answer.cause.check.slug, answer.unknown) == (None, None)
