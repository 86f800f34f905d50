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
    (
        "kernel-fault",
        """\
terminate called after throwing an instance of 'c10::Error'
[rank0]:[E504 10:44:08.389636235 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
""",
    ),
    ("kernel-fault", "RuntimeError: CUDA error: unspecified launch failure\n"),
    (
        "kernel-fault",
        "RuntimeError: cuda runtime error (77) : an illegal memory access was encountered at /tmp/THC.cu:74\n",
    ),
    ("kernel-fault", "RuntimeError: Triton Error [CUDA]: misaligned address\n"),
    (
        "kernel-fault",
        """\
b7:72:457 [1] enqueue.cc:58 NCCL WARN Cuda failure 'an illegal memory access was encountered'
[rank1]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:121, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2
[rank1]: ncclUnhandledCudaError: Call to CUDA function failed.
""",
    ),
    (
        "kernel-fault",
        """\
[24128.834365] NVRM: Xid (PCI:0000:01:00): 13, pid=5151, name=pt_main_thread, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Out Of Range Address
E0715 08:53:42.146000 4123 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: 1) local_rank: 2 (pid: 5151) of binary: /opt/bin/python
""",
    ),
    (
        "device-side-assert",
        "RuntimeError: CUDA error: device-side assert triggered\nCUDA error: unspecified launch failure\n",
    ),
    (
        "gpu-hardware-fault",
        """\
[rank0]: RuntimeError: CUDA error: unspecified launch failure
[ 99.1] NVRM: Xid (PCI:0000:01:00): 79, pid=5151, name=python, GPU has fallen off the bus.
""",
    ),
    ("deepspeed-batch-arithmetic", "AssertionError: Micro batch size per gpu: 0 has to be greater than 0\n"),
    (
        "deepspeed-batch-arithmetic",
        "[rank1]: AssertionError: Gradient accumulation steps: 0 has to be greater than 0\n",
    ),
    (
        "spawn-unpicklable-object",
        """\
  File "/opt/py/lib/python3.8/multiprocessing/popen_spawn_posix.py", line 47, in _launch
    reduction.dump(process_obj, fp)
  File "/opt/py/lib/python3.8/multiprocessing/reduction.py", line 60, in dump
    ForkingPickler(file, protocol).dump(obj)
ValueError: ctypes objects containing pointers cannot be pickled
""",
    ),
    (
        "spawn-unpicklable-object",
        """\
  File "/opt/py/lib/python3.12/site-packages/torch/utils/data/dataloader.py", line 424, in _get_iterator
    return _MultiProcessingDataLoaderIter(self)
  File "/opt/py/lib/python3.12/multiprocessing/popen_spawn_posix.py", line 47, in _launch
    reduction.dump(process_obj, fp)
TypeError: h5py objects cannot be pickled
""",
    ),
    (
        "dataparallel-scalar-output",
        """\
2023-03-16 18:37:25,684 - pretrain - INFO - Using Data parallel ...
Traceback (most recent call last):
  File "main.py", line 31, in <module>
    loss.backward()
  File "/opt/py/lib/python3.7/site-packages/torch/autograd/__init__.py", line 50, in _make_grads
    raise RuntimeError("grad can be implicitly created only for scalar outputs")
RuntimeError: grad can be implicitly created only for scalar outputs
""",
    ),
    ("dataparallel-scalar-output", "RuntimeError: grad can be implicitly created only for scalar outputs\n"),
    (
        "dataparallel-stopiteration",
        """\
Exception in main training loop: Caught StopIteration in replica 0 on device 0.
Original Traceback (most recent call last):
  File "/opt/py/lib/python3.6/site-packages/torch/nn/parallel/parallel_apply.py", line 60, in _worker
    output = module(*input, **kwargs)
""",
    ),
    (
        "other-architecture",
        """\
Missing key(s) in state_dict: "map_head.0.weight", "map_head.0.bias", "map_head.2.weight".

Unexpected key(s) in state_dict: "world_head.0.weight", "world_head.0.bias", "world_head.2.weight".
""",
    ),
    ("shuffle-with-sampler", "ValueError: sampler is mutually exclusive with shuffle\n"),
    (
        "deepspeed-world-size-one",
        """\
AssertionError: Check batch related parameters. train_batch_size is not
equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 4 *
4 * 1
ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 100) of binary: /opt/bin/python
""",
    ),
    ("process-group-not-initialized", "AssertionError: Default process group is not initialized\n"),
    (
        "sighup-terminal-closed",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 713 got signal: 1\n",
    ),
    (
        "killed-by-scheduler",
        """\
submitit WARNING (2022-08-12 02:06:11,453) - Caught signal SIGUSR2 on gpu-04: this job is preempted.
slurmstepd: error: *** JOB 608 ON gpu-04 CANCELLED AT 2022-08-12T02:06:12 DUE TO JOB REQUEUE ***
srun: error: gpu-04: tasks 2-3: Exited with exit code 1
""",
    ),
    (
        "framework-torch-version-skew",
        "AttributeError: 'MMDistributedDataParallel' object has no attribute '_use_replicated_tensor_module'\n",
    ),
    ("module-attribute-on-unwrapped-model", "AttributeError: 'Diffusion' object has no attribute 'module'\n"),
    (
        "open-files-limit",
        "NODE3:    OSError  : [Errno 24] Too many open files\nNODE3: OSError: [Errno 24] Too many open files\nNODE3: EOFErrorTraceback (most recent call last):\n",
    ),
    (
        "nccl-cpu-tensor",
        "RuntimeErrorRuntimeError: : No backend type associated with device type cpuNo backend type associated with device type cpu\n",
    ),
    (
        "collective-order-mismatch",
        "n3:91:140 [2] init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 7. You can use NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=COLL to see the collective logs\n",
    ),
    (
        "zero3-placeholder-weights",
        "        size mismatch for blocks.1.net.0.weight: copying a param with shape torch.Size([1]) from checkpoint, the shape in current model is torch.Size([512, 64]).\n        size mismatch for blocks.2.net.0.weight: copying a param with shape torch.Size([1]) from checkpoint, the shape in current model is torch.Size([64, 512]).\n",
    ),
    (
        "gpu-not-in-build",
        "  0%|  | 0/90 [00:00<?, ?it/s]THCudaCheck FAIL file=/src/aten/src/THC/generic/THCTensorMath.cu line=24 error=48 : no kernel image is available for execution on the device\n",
    ),
    (
        "all-ranks-write-same-path",
        "1: Traceback (most recent call last):\n1:     os.makedirs(args.folder)\n1: FileExistsError: [Errno 17] File exists: '/checkpoint/run1'\n",
    ),
    (
        "worker-error-hidden-by-launcher",
        "INFO: [rank: 1] Child process with PID 20534 terminated with code 1. Forcefully terminating all other processes to avoid zombies\nKilled\n",
    ),
    (
        "host-oom-sigkill",
        "[rank: 1] Child process with PID 9487 terminated with code -9. Forcefully terminating all other processes to avoid zombies\n",
    ),
    (
        "worker-segfault",
        "[rank: 2] Child process with PID 9487 terminated with code -11. Forcefully terminating all other processes to avoid zombies\n",
    ),
    (
        "kernel-fault",
        "THCudaCheck FAIL file=/src/aten/src/THC/THCCachingHostAllocator.cpp line=27 error=77 : an illegal memory access was encountered\n",
    ),
    (
        "apex-ddp-bucket-state",
        """\
Traceback (most recent call last):
  File "/srv/work/fit.py", line 248, in train
    scaled_loss.backward()
  File "/opt/py/lib/python3.6/site-packages/apex/parallel/distributed.py", line 519, in comm_ready_buckets
    bucket_idx, bucket_loc = self.param_id_to_bucket[id(param)]
KeyError: 139892655707984
""",
    ),
    (
        "orig-mod-prefix",
        'Missing key(s) in state_dict: "stem.1.c.weight", "stem.2.c.weight". Unexpected key(s) in state_dict: "_orig_mod.stem.1.c.weight", "_orig_mod.stem.2.c.weight".\n',
    ),
    (
        "gpu-request-exceeds-visible",
        "pytorch_lightning.utilities.exceptions.MisconfigurationException: You requested GPUs: [1]\n But your machine only has: [] \n",
    ),
    (
        "framework-torch-version-skew",
        """\
  File "/opt/py/lib/python3.6/site-packages/torch/nn/parallel/distributed.py", line 331, in _ddp_init_helper
    bucket_indices = dist._compute_bucket_assignment_by_size(
AttributeError: module 'torch.distributed' has no attribute '_compute_bucket_assignment_by_size'
""",
    ),
]
HEALTHY = [
    # a process that no launcher saw fail: an old line of the kernel's log, or another user's
    "[ 8213.118] NVRM: Xid (PCI:0000:5d:00): 31, pid=712, name=python3.11, Ch 00000010, intr 00000000. MMU Fault\n{'loss': 2.1, 'epoch': 0.1}\n",
    "n3:41:99 [0] NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0 busId 4f000 - Init COMPLETE\nn3:41:99 [0] NCCL INFO [Service thread] Connection closed by localRank 0\nn3:41:99 [0] NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0 busId 4f000 - Abort COMPLETE\n{'train_runtime': 99.1}\n",
    "Detected kernel version 4.14.105, which is below the recommended minimum of 5.5.0; this can cause the process to hang. It is recommended to upgrade the kernel to the minimum version or higher.\n{'loss': 2.1}\n",
    '/opt/lib/torchvision/io/image.py:13: UserWarning: Failed to load image Python extension: libtorch_cuda_cu.so: cannot open shared object file: No such file or directory\n  warn(f"Failed to load image Python extension: {e}")\nEpoch 1\n',
    "[I1107 01:20:17.177078606 socket.cpp:773] [c10d - debug] The client socket will attempt to connect to an IPv6 address of (localhost, 38343).\n[I1107 01:20:17.177575988 TCPStore.cpp:334] [c10d - debug] TCP client connected to host localhost:38343\n",
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
