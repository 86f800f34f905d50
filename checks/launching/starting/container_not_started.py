"""A container, or the program in it, cannot be started on this host.

## What happens

The runtime says why before any Python runs, and the log holds nothing else: "exec /usr/local/bin/torchrun: exec format
error" is an image for another kind of processor (x86 on an ARM host such as GH200, or the other way round); "docker:
Error response from daemon", "OCI runtime create failed", Apptainer's "FATAL:   could not open image" and pyxis'
"couldn't start container" name the file, the mount or the right that is missing: below it stand enroot's own lines, as
"[ERROR] Command not found: nvidia-container-cli", a tool that a hook of it calls on the host. The other nodes wait for
this one until their rendezvous times out.

## How to be sure

Start the same image on that host with nothing of the training: `docker run --rm IMAGE true`, `apptainer exec IMAGE
true`. `uname -m` and `docker image inspect --format '{{.Architecture}}' IMAGE` have to agree.

## How to mend it

What the runtime names: pull or build the image for this processor (`docker build --platform linux/arm64`), copy it to
a path that the host sees, mount what is there, make room where images are unpacked.

## Versions and sources

Does not depend on torch's version. Sources: execve(2), ENOEXEC; messages of Docker, containerd, runc, Apptainer,
enroot and pyxis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP459", Severity.ERROR)


@log_pattern(
    r"(?:^|\n)[^\n]{0,80}?\bexec (?P<file>/[^\n:]{1,200}): exec format error"
    r"|(?P<shell>/[^\s:]{1,200}): cannot execute binary file: Exec format error"
    r"|OSError: \[Errno 8\] Exec format error: '(?P<python>[^'\n]{1,200})'"
)
def of_another_processor(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The kernel does not know the format of the program: of another processor, or no program at all."""
    file = match["file"] or match["shell"] or match["python"]
    yield Finding(
        f"{file} is no program that this host's processor runs: the image, or the file, is of another architecture",
        (record.proof(match, "an image of the architecture that `uname -m` prints"),),
        Fix(
            "build or pull the image for this processor; a script needs a first line that names its shell",
            command="uname -m; docker image inspect --format '{{.Architecture}}' IMAGE\n"
            f"docker build --platform linux/arm64 -t IMAGE .   # on ARM hosts\nhead -c 40 {file}",
        ),
        record.place,
    )


@log_pattern(
    r"docker: Error response from daemon: (?P<docker>[^\n]{1,400})"
    r"|(?P<oci>OCI runtime (?:create|start|exec) failed: [^\n]{1,400})"
    r"|FATAL: {1,4}(?P<apptainer>(?:could not open image|container creation failed|while [\w ]{1,40}:"
    r"|Unable to [\w ]{1,40}|image \S+ )[^\n]{0,300})"
    r"|pyxis: (?P<pyxis>(?:couldn't|failed to|container start failed)[^\n]{0,300})",
    role=Role.GENERIC,
)
def of_the_runtime(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote what the runtime says; where another check knows more of it, that comes first."""
    said = next(filter(None, match.groups()))
    yield Finding(
        f"the container was not started: {' '.join(said.split())[:240]}",
        (record.proof(match, "a container that starts"),),
        Fix(
            "start the image alone on that host, and mend what the runtime names: image, mount, right or room",
            command="apptainer exec --nv IMAGE true; df -h /tmp ~/.apptainer"
            if match["apptainer"]
            else "srun --container-image=IMAGE true; enroot list; df -h $ENROOT_DATA_PATH /tmp"
            if match["pyxis"]
            else "docker run --rm IMAGE true; df -h /var/lib/docker",
        ),
        record.place,
    )


@log_pattern(r"\[ERROR\] Command not found: (?P<tool>[\w.-]{1,60})(?:, see (?P<see>https?://\S{1,200}))?")
def for_want_of_a_tool(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Enroot, or one of its hooks, calls a program on the host and names it where it is not there."""
    tool = match["tool"]
    package = "libnvidia-container-tools" if tool == "nvidia-container-cli" else tool
    yield Finding(
        f"enroot cannot start the container: {tool}, which it calls on the host, is not installed there",
        (record.proof(match, f"{tool} in PATH, on each node of the job"),),
        Fix(
            f"install {package} on the node, or leave the node out until then",
            command=f"srun -N $SLURM_NNODES --ntasks-per-node=1 bash -c 'hostname; command -v {tool}'\n"
            f"sudo apt-get install -y {package}" + (f"   # {match['see']}" if match["see"] else ""),
        ),
        record.place,
    )
