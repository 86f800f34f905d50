"""A variable has a value that its reader cannot read.

## What happens

`export NCCL_P2P_DISABLE=true` switches nothing off. NCCL reads its switches and sizes as numbers: it takes `true` for
0, newer versions for the default, and says so at NCCL_DEBUG=INFO only. Of `NCCL_BUFFSIZE=4M` it takes the number in
front, 4 bytes. torch is stricter: a word where TORCH_NCCL_ASYNC_ERROR_HANDLING has a number ends each rank when its
NCCL group is made ("Invalid value for environment variable"), and TORCH_DISTRIBUTED_DEBUG=verbose ends `import torch`.
A level that NCCL has no name for (`NCCL_P2P_LEVEL=NVLINK`, where it is NVL) is as if it was not set.
The OpenMP library ignores `OMP_NUM_THREADS=four`, and each rank uses all cores.

## How to be sure

`NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ENV` prints "NCCL_P2P_DISABLE set by environment to 0." where 1 was meant. Words for
"off" are not reported: most of these switches are 0 then, as meant.

## How to mend it

Give a number: 1 for on, 0 for off, sizes in bytes.

    export NCCL_P2P_DISABLE=1

## Versions and sources

Holds for torch 2.2 to 2.13 and NCCL 2.19 to 2.28; what TORCH_DISTRIBUTED_DEBUG and OMP_NUM_THREADS do was seen with
torch 2.13 CPU. Sources: NCCL documentation, "Environment Variables", and NCCL's param.cc and
graph/paths.cc (ncclGetLevel); torch's Utils.hpp
(getCvarInt, getCvarBool) and debug.cpp; the OpenMP specification.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Record, Severity, lint, log_pattern, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, LaunchScript, Script

AILMENT = Ailment("DDP123", Severity.WARNING)
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
MUCH = {"debug", "verbose", "trace", "all", "1", "true", "yes", "on"}
ON, OFF = {"y", "yes", "t", "true", "on", "enable", "enabled"}, {"", "n", "no", "f", "false", "off", "none"}
TORCH_READS = {"y", "yes", "1", "t", "true", "n", "no", "0", "f", "false"}
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
NUMBER = re.compile(r"\s*([+-]?(?:0[xX][0-9a-fA-F]+|\d+))(.*)", re.DOTALL)
Wrong = tuple[str, str, str]  # what its reader makes of it, what it can read, the value that was meant


@probe
def in_the_environment(facts: Facts) -> Iterator[Finding]:
    """Read the values as their readers do."""
    for name, value in sorted(facts.environ.items()):
        if (wrong := misread(name, value)) is not None:
            told, expected, meant = wrong
            yield Finding(
                f"{name}={value}: {told}",
                (Evidence(f"{name}={value}", expected, "environment"),),
                Fix("give a value that is read", command=f"export {name}={meant}" if meant else f"unset {name}"),
                Place(variable=name),
                severity=_severity(name),
            )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look where the script sets a variable; those that ``import torch`` reads are read by then."""
    for node in script.nodes(ast.Assign):
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=environ, slice=ast.Constant(value=str(name)))],
                value=ast.Constant(value=str(value)) as given,
            ) if "NCCL_" in name and (wrong := misread(name, value)) and script.resolve(environ) == "os.environ":
                told, expected, meant = wrong
                edits = (script.replaced(given, f'"{meant}"'),) if meant else ()
                fix = Fix(f"give {expected}", edits=edits)
                yield Finding(
                    f"{name}={value}: {told}",
                    (script.seen(node, expected),),
                    fix,
                    script.place(node),
                    severity=_severity(name),
                )


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look where a file that starts trainings sets a variable."""
    for setting in launch.settings:
        word = setting.value
        value = launch.value(word)
        if word is None or value is None or word.reads or (wrong := misread(setting.name, value)) is None:
            continue
        told, expected, meant = wrong
        yield Finding(
            f"{setting.name}={value}: {told}",
            (launch.seen(setting.line, expected),),
            Fix(f"give {expected}", edits=(launch.replaced(word.begin, word.end, meant),) if meant else ()),
            launch.place(setting.line, setting.begin),
            severity=_severity(setting.name),
        )


@log_pattern(
    r"Invalid value for environment variable: (?P<name>(?:TORCH_)?NCCL_\w+)"
    r"|The value of (?P<level>TORCH_DISTRIBUTED_DEBUG) must be OFF, INFO, or DETAIL"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the name of the variable, which torch gives."""
    name = match["name"] or match["level"]
    yield Finding(
        f"torch cannot read the value of {name}",
        (record.proof(match, _expected(name)),),
        Fix("give a value that is read, or none", command=f"unset {name}"),
        Place(variable=name, rank=record.rank, host=record.node),
        severity=Severity.ERROR,
    )


def misread(name: str, value: str) -> Wrong | None:
    """Return what is wrong with a variable's value; None where it is read as it is meant, or nobody knows."""
    word = value.strip().lower()
    if name in NCCL_NUMBERS or name in NCCL_LEVELS:
        return _read_by_nccl(name, value, word) if name in NCCL_NUMBERS else _level_read_by_nccl(value, word)
    meant = "1" if word in ON else ""
    if name in TORCH_NUMBERS and word and not re.match(r"\s*[+-]?\d", value):
        return "torch refuses it when it makes an NCCL process group", _expected(name), meant
    if name in TORCH_SWITCHES and value and value.lower() not in TORCH_READS:
        return "torch refuses it when it makes an NCCL process group", _expected(name), meant
    if name == "TORCH_DISTRIBUTED_DEBUG" and value.upper() not in {"", "OFF", "INFO", "DETAIL"}:
        return "import torch ends with a ValueError", _expected(name), "DETAIL" if word in MUCH else ""
    if name == "OMP_NUM_THREADS" and word and not re.fullmatch(r"\s*[1-9]\d*\s*(,\s*[1-9]\d*\s*)*", value):
        return "the OpenMP library ignores it, and each rank computes on all cores", _expected(name), "1"
    return None


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
        return "NCCL reads no number in it, and takes 0 or its default", _expected(name), meant
    unit = number[2].strip().lower().removesuffix("b").removesuffix("i")
    if unit not in UNITS:
        return None
    return f"NCCL reads the number alone, {number[1]}", _expected(name), str(int(number[1], 0) * UNITS[unit])


def _expected(name: str) -> str:
    """Return what a variable's reader can read."""
    if name == "TORCH_DISTRIBUTED_DEBUG":
        return "OFF, INFO or DETAIL"
    if name in NCCL_SWITCHES or name in TORCH_SWITCHES:
        return "1 or 0"
    return "a number of bytes" if name.endswith("BUFFSIZE") else "a number"


def _severity(name: str) -> Severity | None:
    return Severity.ERROR if name.startswith("TORCH_") else None
