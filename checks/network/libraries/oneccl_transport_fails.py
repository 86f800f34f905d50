"""oneCCL, Intel's communication library, cannot open its transport.

## What happens

Outside of mpirun oneCCL uses libfabric (ATL/OFI). Where libfabric offers no provider for what is asked, the group's
first communication ends with "CCL_ERROR| atl_ofi_helper.cpp: fi_getinfo error: ret -61, providers 0", "can't find
suitable provider", "EXCEPTION: init transport failed" or "failed to initialize ATL". Lines with CCL_WARN are harmless.

"ze error at zeMemOpenIpcHandle, code: ZE_RESULT_ERROR_INVALID_ARGUMENT": a rank got the handle of a peer's memory, and
its own view of the GPUs, or the driver, does not let it open that.

On GPUs the ranks of a host hand each other their memory through the devices in /dev/dri. In a container that was
started with `--device /dev/dri` alone the links in /dev/dri/by-path are absent: "ze_fd_manager.cpp:144 init_device_fds:
condition dir failed", "opendir failed: could not open device directory". Where the folder is there and the devices that
its links name are not, or may not be opened: "fill_device_fds: EXCEPTION: open failed: fd: -1, errno: No such file".

Which ranks are of one host, and how many, oneCCL learns from mpirun's variables, or asks libfabric. Under torchrun with
handles that go by anything but sockets that ends: "failed to get local_idx/count from ATL, set
CCL_ZE_IPC_EXCHANGE=sockets explicitly". The warning "could not get local_idx/count from environment variables" alone is
harmless.

## How to be sure

`fi_info` lists the providers that are there; `env | grep -E '^(FI_|CCL_)'` which ones are asked for.

## How to mend it

Source the package's own setvars.sh in the shell that starts the ranks, on each host: it sets FI_PROVIDER_PATH. Ask for
a provider that exists everywhere (FI_PROVIDER=tcp) and leave FI_TCP_IFACE=lo out with several hosts. Under mpirun,
CCL_ATL_TRANSPORT=mpi.

Under torchrun or accelerate, CCL_ZE_IPC_EXCHANGE=sockets. A container needs the folder itself, `-v
/dev/dri/by-path:/dev/dri/by-path`, beside `--device /dev/dri`.

## Versions and sources

Holds for oneCCL 2021.5 to 2021.17, and its bindings for torch 2.0 to 2.8. Source: oneCCL, src/atl/ofi and
ze_fd_manager.cpp; uxlfoundation/oneCCL#217, huggingface/accelerate#2340.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP327", Severity.ERROR)


@log_pattern(
    r"oneCCL: [\w.]+:\d+ \w+: EXCEPTION: (?:init transport failed|failed to initialize ATL)"
    r"|\|CCL_ERROR\| atl_ofi\w*\.cpp:\d+ \w+: (?:fi_getinfo error: ret -61, providers 0|can't find suitable provider"
    r"|can not open network providers|can't create providers for name (?P<name>\w+))|^failed to initialize ATL"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Libfabric has no provider for what is asked."""
    asked = f" for {match['name']}" if match["name"] else ""
    yield Finding(
        f"oneCCL cannot open its transport: libfabric has no provider{asked} that fits",
        (record.proof(match, "a provider of libfabric that all hosts have"),),
        Fix(
            "set up the package's environment on each host, and ask for a provider that exists there",
            command="source \"$(python -c 'import oneccl_bindings_for_pytorch as t; print(t.cwd)')/env/setvars.sh\"\n"
            "export FI_PROVIDER=tcp; fi_info -l",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "libfabric finds no providers at all: FI_PROVIDER_PATH is not set",
                "FI_PROVIDER, or CCL_ATL_SHM, asks for one that is not there",
                "FI_TCP_IFACE names an interface that does not lead to the other hosts",
            ),
            "fi_info -l; env | grep -E '^(FI_|CCL_)'",
        ),
    )


@log_pattern(
    r"opendir failed: could not open device directory"
    r"|ze_fd_manager\.cpp:\d+ fill_device_fds: EXCEPTION: open failed: fd: -1, errno: (?P<why>[^\n]{1,60})"
)
def of_the_devices(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The ranks of a host exchange the handles of their GPUs' memory by the devices' own folder."""
    yield Finding(
        f"oneCCL cannot open a GPU in /dev/dri, by which the ranks of a host hand each other memory: {match['why']}"
        if match["why"]
        else "oneCCL finds no /dev/dri/by-path, by which the ranks of a host hand each other the memory of their GPUs",
        (record.proof(match, "/dev/dri/by-path, with a link for each GPU"),),
        Fix(
            "give the container the folder as well as the devices",
            command="docker run --device /dev/dri -v /dev/dri/by-path:/dev/dri/by-path --ipc=host ...\n"
            "ls -l /dev/dri/by-path   # within it",
        ),
        record.place,
    )


@log_pattern(r"failed to get local_idx/count from ATL, set CCL_ZE_IPC_EXCHANGE=(?P<way>\w+)")
def of_the_place_on_the_host(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Without mpirun's variables oneCCL does not know which rank of its host this one is."""
    yield Finding(
        "oneCCL does not know which rank of its host this one is: the launcher set no variables of MPI's",
        (record.proof(match, f"CCL_ZE_IPC_EXCHANGE={match['way']}, or a start by mpirun"),),
        Fix(
            "let the ranks exchange handles of memory by sockets, or start them with mpirun",
            command=f"export CCL_ZE_IPC_EXCHANGE={match['way']}   # on all ranks\n"
            "mpirun -n RANKS python train.py   # or this",
        ),
        record.place,
    )


@log_pattern(r"ze error at (?P<call>zeMem(?:Open|Get)IpcHandle\w{0,20}), code: (?P<code>ZE_RESULT_\w{1,60})")
def of_a_handle(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A GPU's memory cannot be shared between two ranks of a host."""
    yield Finding(
        f"oneCCL cannot share the memory of a GPU between two ranks of a host: {match['call']}",
        (record.proof(match, "a handle that the peer can open"),),
        Fix(
            "let oneCCL go through host memory",
            command="export CCL_TOPO_P2P_ACCESS=0   # on all ranks\nexport CCL_ZE_IPC_EXCHANGE=sockets   # or this",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "each rank sees its own GPU only (ZE_AFFINITY_MASK), and the handle is of another one",
                "the GPUs, or their driver, have no peer access",
                "the ranks are in containers without --ipc=host or /dev/dri/by-path",
            ),
            "env | grep -E 'ZE_AFFINITY_MASK|^CCL_'; ls -l /dev/dri/by-path; xpu-smi topology -m",
        ),
    )
