"""What the readers of variables make of a value: NCCL, torch, its allocator, and the OpenMP library."""

from __future__ import annotations

import re

NCCL_SWITCHES = frozenset(
    """
NCCL_CHECKS_DISABLE NCCL_CHECK_POINTERS NCCL_COLLNET_ENABLE NCCL_CUMEM_ENABLE NCCL_CUMEM_HOST_ENABLE NCCL_DMABUF_ENABLE
NCCL_IB_DISABLE NCCL_IGNORE_CPU_AFFINITY NCCL_IGNORE_DISABLED_P2P NCCL_NET_DISABLE_INTRA NCCL_NVB_DISABLE
NCCL_NVLS_ENABLE NCCL_P2P_DIRECT_DISABLE NCCL_P2P_DISABLE NCCL_PXN_DISABLE NCCL_SHM_DISABLE
""".split()
)
NCCL_NUMBERS = NCCL_SWITCHES | frozenset(
    """
NCCL_BUFFSIZE NCCL_IB_GID_INDEX NCCL_IB_QPS_PER_CONNECTION NCCL_IB_RETRY_CNT NCCL_IB_SL NCCL_IB_TC NCCL_IB_TIMEOUT
NCCL_LL128_BUFFSIZE NCCL_LL_BUFFSIZE NCCL_MAX_CTAS NCCL_MAX_NCHANNELS NCCL_MIN_CTAS NCCL_MIN_NCHANNELS
NCCL_NSOCKS_PERTHREAD NCCL_NTHREADS NCCL_SOCKET_NTHREADS
""".split()
)
TORCH_NUMBERS = frozenset(
    """
TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_COORD_CHECK_MILSEC TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC
TORCH_NCCL_TRACE_BUFFER_SIZE TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC
""".split()
)
TORCH_SWITCHES = frozenset(
    """
TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_DESYNC_DEBUG TORCH_NCCL_DUMP_ON_TIMEOUT TORCH_NCCL_ENABLE_MONITORING
TORCH_NCCL_ENABLE_TIMING
""".split()
)
NCCL_LEVELS = {"NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"}
DOCUMENTED = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
LEVELS = {*DOCUMENTED, "NVB", "C2C", "P2C", "PXN", "NET", "DIS", "XGMI"}
ALLOCATOR = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}
LOGS = ("VERSION", "WARN", "INFO", "ABORT", "TRACE")
MUCH = {"debug", "verbose", "trace", "all", "1", "true", "yes", "on"}
ON, OFF = {"y", "yes", "t", "true", "on", "enable", "enabled"}, {"", "n", "no", "f", "false", "off", "none"}
TORCH_READS = {"y", "yes", "1", "t", "true", "n", "no", "0", "f", "false"}
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
NUMBER = re.compile(r"\s*([+-]?(?:0[xX][0-9a-fA-F]+|\d+))(.*)", re.DOTALL)
Wrong = tuple[str, str, str]  # what its reader makes of it, what it can read, the value that was meant


def misread(name: str, value: str) -> Wrong | None:
    """Return what is wrong with a variable's value; None where it is read as it is meant, or nobody knows."""
    word = value.strip().lower()
    if name in NCCL_NUMBERS or name in NCCL_LEVELS:
        return _read_by_nccl(name, value, word) if name in NCCL_NUMBERS else _level_read_by_nccl(value, word)
    meant = "1" if word in ON else ""
    if name in TORCH_NUMBERS and word and not re.match(r"\s*[+-]?\d", value):
        return "torch refuses it when it makes an NCCL process group", expected_of(name), meant
    if name in TORCH_SWITCHES and value and value.lower() not in TORCH_READS:
        return "torch refuses it when it makes an NCCL process group", expected_of(name), meant
    if name == "TORCH_DISTRIBUTED_DEBUG" and value.upper() not in {"", "OFF", "INFO", "DETAIL"}:
        return "import torch ends with a ValueError", expected_of(name), "DETAIL" if word in MUCH else ""
    if name == "OMP_NUM_THREADS" and word and not re.fullmatch(r"\s*[1-9]\d*\s*(,\s*[1-9]\d*\s*)*", value):
        return "the OpenMP library ignores it, and each rank computes on all cores", expected_of(name), "1"
    return _logged_by_nccl(name, value, word) or _read_by_the_allocator(name, value, word)


def _logged_by_nccl(name: str, value: str, word: str) -> Wrong | None:
    """Compare a level of the log with NCCL's, in whatever letters; what means that nothing is logged is as meant."""
    if name != "NCCL_DEBUG" or word in OFF or word == "0" or value.strip().upper() in LOGS:
        return None
    return "NCCL knows no such level, and logs nothing", expected_of(name), "INFO"


def _read_by_the_allocator(name: str, value: str, word: str) -> Wrong | None:
    """Look for the colon between a key and its value, without which torch reads no key."""
    if name not in ALLOCATOR or not word or ":" in value:
        return None
    told = "torch refuses it as a rank comes to its GPU"
    return told, expected_of(name), value.replace("=", ":") if "=" in value else ""


def _level_read_by_nccl(value: str, word: str) -> Wrong | None:
    """Compare a level with the names of NCCL's, letter by letter as NCCL does; old versions have numbers for them."""
    if not word or value in LEVELS or value[:1].isdigit():
        return None
    meant = next((each for each in DOCUMENTED if word.upper().startswith(each)), "")
    return "NCCL knows no such level, and takes its default", f"one of {', '.join(DOCUMENTED)}", meant


def _read_by_nccl(name: str, value: str, word: str) -> Wrong | None:
    number = NUMBER.fullmatch(value)
    if number is None:
        if word in OFF:
            return None
        meant = "1" if word in ON and name in NCCL_SWITCHES else ""
        return "NCCL reads no number in it, and takes 0 or its default", expected_of(name), meant
    unit = number[2].strip().lower().removesuffix("b").removesuffix("i")
    if unit not in UNITS:
        return None
    return f"NCCL reads the number alone, {number[1]}", expected_of(name), str(int(number[1], 0) * UNITS[unit])


def expected_of(name: str) -> str:
    """Return what a variable's reader can read."""
    if name == "TORCH_DISTRIBUTED_DEBUG":
        return "OFF, INFO or DETAIL"
    if name == "NCCL_DEBUG":
        return "VERSION, WARN, INFO or TRACE"
    if name in ALLOCATOR:
        return "key:value, and a comma before the next key"
    if name in NCCL_SWITCHES or name in TORCH_SWITCHES:
        return "1 or 0"
    return "a number of bytes" if name.endswith("BUFFSIZE") else "a number"
