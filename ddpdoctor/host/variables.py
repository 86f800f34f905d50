"""Environment variables that bear on distributed training, and how to recognise a misspelling of one.

Sources: torch.distributed and torchrun documentation and torch's sources (2.2 to 2.13), NCCL documentation
("Environment Variables"), CUDA C++ Programming Guide, gloo and TensorPipe in torch, the OpenMP specification.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

TO_JOIN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What a process reads that joins a group by ``env://``."""
LAUNCH = """
GROUP_RANK GROUP_WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT RANK ROLE_NAME ROLE_RANK
ROLE_WORLD_SIZE WORLD_SIZE NODE_RANK NNODES TORCHELASTIC_ERROR_FILE TORCHELASTIC_MAX_RESTARTS
TORCHELASTIC_RESTART_COUNT TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
""".split()
CUDA = """
CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_HOME CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_PATH
CUDA_VISIBLE_DEVICES CUBLAS_WORKSPACE_CONFIG NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES
PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_NVML_BASED_CUDA_CHECK
""".split()
TORCH = """
GLOO_DEVICE_TRANSPORT GLOO_SOCKET_IFNAME TP_SOCKET_IFNAME OMP_NUM_THREADS MKL_NUM_THREADS TORCH_CPP_LOG_LEVEL
TORCH_DISTRIBUTED_DEBUG TORCH_DISTRIBUTED_DETAIL TORCH_FR_BUFFER_SIZE TORCH_LOGS TORCH_NCCL_ASYNC_ERROR_HANDLING
TORCH_NCCL_AVOID_RECORD_STREAMS TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_COORD_CHECK_MILSEC TORCH_NCCL_CUDA_EVENT_CACHE
TORCH_NCCL_DEBUG_INFO_PIPE_FILE TORCH_NCCL_DEBUG_INFO_TEMP_FILE TORCH_NCCL_DESYNC_DEBUG TORCH_NCCL_DUMP_ON_TIMEOUT
TORCH_NCCL_ENABLE_MONITORING TORCH_NCCL_ENABLE_TIMING TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC TORCH_NCCL_HIGH_PRIORITY
TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN TORCH_NCCL_NAN_CHECK TORCH_NCCL_PROPAGATE_ERROR
TORCH_NCCL_RETHROW_CUDA_ERRORS TORCH_NCCL_TRACE_BUFFER_SIZE TORCH_NCCL_TRACE_CPP_STACK
TORCH_NCCL_USE_COMM_NONBLOCKING TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC
TORCH_SHOW_CPP_STACKTRACES TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES TORCH_USE_CUDA_DSA USE_LIBUV
""".split()
NCCL = """
NCCL_ALGO NCCL_ASYNC_ERROR_HANDLING NCCL_AVOID_RECORD_STREAMS NCCL_BLOCKING_WAIT NCCL_BUFFSIZE NCCL_CGA_CLUSTER_SIZE
NCCL_CHECKS_DISABLE NCCL_CHECK_POINTERS NCCL_COLLNET_ENABLE NCCL_COLLNET_NODE_THRESHOLD NCCL_COMM_BLOCKING NCCL_COMM_ID
NCCL_COMM_SPLIT_SHARE_RESOURCES NCCL_CONF_FILE NCCL_CREATE_THREAD_CONTEXT NCCL_CROSS_NIC NCCL_CTA_POLICY
NCCL_CUMEM_ENABLE NCCL_CUMEM_HOST_ENABLE NCCL_DEBUG NCCL_DEBUG_FILE NCCL_DEBUG_SUBSYS NCCL_DEBUG_TIMESTAMP_FORMAT
NCCL_DEBUG_TIMESTAMP_LEVELS NCCL_DESYNC_DEBUG NCCL_DMABUF_ENABLE NCCL_DUMP_ON_TIMEOUT NCCL_ENABLE_MONITORING
NCCL_ENABLE_TIMING NCCL_GDRCOPY_ENABLE NCCL_GRAPH_DUMP_FILE NCCL_GRAPH_FILE NCCL_GRAPH_MIXING_SUPPORT
NCCL_GRAPH_REGISTER NCCL_HEARTBEAT_TIMEOUT_SEC NCCL_HOSTID NCCL_IB_ADAPTIVE_ROUTING NCCL_IB_ADDR_FAMILY
NCCL_IB_ADDR_RANGE NCCL_IB_AR_THRESHOLD NCCL_IB_CUDA_SUPPORT NCCL_IB_DATA_DIRECT NCCL_IB_DISABLE NCCL_IB_ECE_ENABLE
NCCL_IB_FIFO_TC NCCL_IB_GID_INDEX NCCL_IB_HCA NCCL_IB_MERGE_NICS NCCL_IB_MERGE_VFS NCCL_IB_PCI_RELAXED_ORDERING
NCCL_IB_PKEY NCCL_IB_QPS_PER_CONNECTION NCCL_IB_RETRY_CNT NCCL_IB_RETURN_ASYNC_EVENTS NCCL_IB_ROCE_VERSION_NUM
NCCL_IB_SL NCCL_IB_SPLIT_DATA_ON_QPS NCCL_IB_TC NCCL_IB_TIMEOUT NCCL_IB_USE_INLINE NCCL_IB_WARN_RAIL_LOCAL
NCCL_IGNORE_CPU_AFFINITY NCCL_IGNORE_DISABLED_P2P NCCL_LAUNCH_MODE NCCL_LAUNCH_ORDER_IMPLICIT NCCL_LL128_BUFFSIZE
NCCL_LL128_NTHREADS NCCL_LL_BUFFSIZE NCCL_LL_THRESHOLD NCCL_LOCAL_REGISTER NCCL_MAX_CTAS NCCL_MAX_NCHANNELS
NCCL_MAX_NRINGS NCCL_MAX_P2P_NCHANNELS NCCL_MIN_CTAS NCCL_MIN_NCHANNELS NCCL_MIN_NRINGS NCCL_MIN_P2P_NCHANNELS
NCCL_MNNVL_ENABLE NCCL_NCHANNELS_PER_NET_PEER NCCL_NET NCCL_NETDEVS_POLICY NCCL_NET_DISABLE_INTRA NCCL_NET_FORCE_FLUSH
NCCL_NET_FORCE_MERGE NCCL_NET_GDR_C2C NCCL_NET_GDR_LEVEL NCCL_NET_GDR_READ NCCL_NET_MERGE_LEVEL NCCL_NET_PLUGIN
NCCL_NET_SHARED_BUFFERS NCCL_NET_SHARED_COMMS NCCL_NSOCKS_PERTHREAD NCCL_NTHREADS NCCL_NVB_DISABLE
NCCL_NVLSTREE_MAX_CHUNKSIZE NCCL_NVLS_CHUNKSIZE NCCL_NVLS_ENABLE NCCL_NVLS_NCHANNELS NCCL_OOB_NET_ENABLE
NCCL_OOB_NET_IFNAME NCCL_P2P_DIRECT_DISABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_P2P_LL_THRESHOLD
NCCL_P2P_NET_CHUNKSIZE NCCL_P2P_NVL_CHUNKSIZE NCCL_P2P_PCI_CHUNKSIZE NCCL_P2P_PXN_LEVEL NCCL_P2P_READ_ENABLE
NCCL_P2P_USE_CUDA_MEMCPY NCCL_PROFILER_PLUGIN NCCL_PROTO NCCL_PXN_DISABLE NCCL_RAS_ADDR NCCL_RAS_ENABLE
NCCL_RAS_TIMEOUT_FACTOR NCCL_RINGS NCCL_RUNTIME_CONNECT NCCL_SET_STACK_SIZE NCCL_SET_THREAD_NAME NCCL_SHARP_DISABLE
NCCL_SHM_DISABLE NCCL_SHM_LOCALITY NCCL_SHM_USE_CUDA_MEMCPY NCCL_SINGLE_RING_THRESHOLD NCCL_SOCKET_FAMILY
NCCL_SOCKET_IFNAME NCCL_SOCKET_NTHREADS NCCL_SOCKET_RETRY_CNT NCCL_SOCKET_RETRY_SLEEP_MSEC NCCL_STORE_TIMEOUT
NCCL_THREAD_THRESHOLDS NCCL_TOPO_DUMP_FILE NCCL_TOPO_DUMP_FILE_RANK NCCL_TOPO_FILE NCCL_TRACE_BUFFER_SIZE
NCCL_TREE_THRESHOLD NCCL_TUNER_CONFIG_FILE NCCL_TUNER_PLUGIN NCCL_UID_STAGGER_RATE NCCL_UID_STAGGER_THRESHOLD
NCCL_USE_COMM_NONBLOCKING NCCL_WIN_ENABLE NCCL_WORK_FIFO_BYTES NCCL_WORK_FIFO_DEPTH
""".split()
KNOWN = frozenset((*LAUNCH, *CUDA, *TORCH, *NCCL))
# Short words that a letter turns into another word of somebody else's: RANKS, BANK, MASTER_ADDRS.
UNMISTAKABLE = tuple(name for name in sorted(KNOWN) if len(name) >= 9 and name != "CUDA_PATH")  # noqa: PLR2004 - as said


def _letters(name: str) -> int:
    """Return which characters a name has, each as a bit."""
    bits = 0
    for char in name:
        bits |= 1 << (ord(char) & 127)
    return bits


NEAR = tuple((name, 2 if len(name) >= 14 else 1, _letters(name)) for name in UNMISTAKABLE)  # noqa: PLR2004 - as below
"""Each known name, how many edits away a misspelling is at most, and its characters."""


@functools.lru_cache(maxsize=4096)  # a project sets the same few in all its scripts
def meant(name: str) -> str | None:
    """Return the known variable of which ``name`` is a misspelling, None where it is none.

    A misspelling is one edit away (two for names of 14 letters and more): a letter left out, put in, or another, or
    two neighbours swapped. A plural is a name of its own, and so is one with a digit more, or another digit.
    """
    if name in KNOWN:
        return None
    plain = name.strip().upper().replace("-", "_")
    if plain in KNOWN:
        return plain
    own = _letters(plain)
    close = [
        known
        for known, most, letters in NEAR
        # An edit brings in one character at most, and takes one away: counted first, as it is a hundred times faster.
        if abs(len(known) - len(plain)) <= most
        and (own & ~letters).bit_count() <= most
        and (letters & ~own).bit_count() <= most
        and edits(plain, known) <= most
    ]
    if len(close) != 1 or plain != name or _own_name(plain, close[0]):
        return None
    return close[0]


def _own_name(name: str, known: str) -> bool:
    """Whether somebody chose a name that is near a known one, so that it is no slip of the fingers."""
    digits = [char for char in name if char.isdigit()] != [char for char in known if char.isdigit()]
    ours, theirs = name.split("_"), known.split("_")
    if len(ours) == len(theirs):
        pairs = [(one, other) for one, other in zip(ours, theirs, strict=True) if one != other]
        # MASTER_PORTS is a plural, LOCAL_BANK another word, and so is as likely a word of three letters: NCCL_IB_TC.
        return digits or any(one == other + "S" or one[:1] != other[:1] or len(other) <= 3 for one, other in pairs)  # noqa: PLR2004 - as said
    return digits


def edits(one: str, other: str) -> int:
    """Count the edits between two words: insertions, deletions, substitutions, swaps of neighbours.

    The optimal string alignment distance (a restricted Damerau-Levenshtein distance).
    """
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(rows[-1][j] + 1, row[j - 1] + 1, rows[-1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """Return each misspelt name with what was meant."""
    return {name: known for name in sorted(names) if (known := meant(name)) is not None}
