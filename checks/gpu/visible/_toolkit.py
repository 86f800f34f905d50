"""Why NVIDIA's container tool could not give GPUs to a container, by its own words."""

from __future__ import annotations

from ddpdoctor.check import Fix

TOOLKIT = "sudo apt-get install -y --only-upgrade nvidia-container-toolkit libnvidia-container1"
OF_TOOLKIT = (
    (
        "bpf_prog_query",
        "it does not know how this kernel keeps devices (cgroup v2), or is not allowed to change that",
        Fix(
            "upgrade NVIDIA's container toolkit; for a Docker that does not run as root, let it leave cgroups alone",
            command=f"{TOOLKIT}\nsudo sed -i 's/^#*no-cgroups = .*/no-cgroups = true/' "
            "/etc/nvidia-container-runtime/config.toml   # rootless Docker alone",
        ),
    ),
    (
        "ldcache error",
        "ldconfig fails within the image, which is of another processor, not whole, or without /sbin/ldconfig",
        Fix(
            "take the image anew, and see whether ldconfig runs in it",
            command="uname -m; enroot start IMAGE /sbin/ldconfig -p | tail -n 1   # or: docker run --rm IMAGE ...",
        ),
    ),
    (
        "unsatisfied condition",
        "the image asks for a newer driver than the host has",
        Fix("upgrade the driver, or take an image for its CUDA", command="nvidia-smi | head -n 4"),
    ),
    (
        "libnvidia-ml.so",
        "it finds no driver on the host",
        Fix("install the driver on the host; under WSL, that of Windows", command="nvidia-smi -L"),
    ),
    (
        "driver/library version mismatch",
        "the driver was upgraded, and its old kernel module is still loaded",
        Fix("restart the host", command="cat /proc/driver/nvidia/version; sudo reboot"),
    ),
)


def reason_of(kind: str, why: str) -> tuple[str, Fix]:
    """Return what the tool's words mean, and how it is mended; its words themselves where they are not known."""
    said = f"{kind} error: {' '.join(why.split())}"
    known = next((each for each in OF_TOOLKIT if each[0] in said), None)
    return (known[1], known[2]) if known else (said, TRY)


TRY = Fix(
    "start the image alone on that host, with the tool's own log",
    command="nvidia-container-cli -k -d /dev/stderr info   # on the host\n"
    "docker run --rm --gpus all IMAGE nvidia-smi -L   # enroot: enroot start IMAGE nvidia-smi -L",
)
