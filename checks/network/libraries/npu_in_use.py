"""An NPU, HCCL's port for it, a Gaudi card, a NeuronCore or a TPU is still held by another process.

## What happens

A training that was killed can leave processes behind that hold the NPU and its port (16666 and following). The next one
ends with "EJ0001: Failed to initialize the HCCP process. Reason: Maybe the last training process is running", or
"listen on ip[...] and specific port[16666] fail". Two jobs on one host that use the same NPUs look the same. The other
ranks wait for theirs until HCCL_CONNECT_TIMEOUT (120 s) has passed, and then say so (EI0006), which only follows.

A TPU belongs to one process at a time, which libtpu notes in /tmp/libtpu_lockfile: "libtpu.so already in use by another
process probably owned by another user", "open(/dev/accel0): Operation not permitted". "Not attempting to load libtpu.so
in this process" alone is no failure: the process goes on without.

A process on Trainium or Inferentia takes all NeuronCores that NEURON_RT_VISIBLE_CORES, or NEURON_RT_NUM_CORES, does not
keep from it: "nrt_allocate_neuron_cores  Logical Neuron Core(s) not available - Requested:2 Available:0".

## How to be sure

`npu-smi info` lists the processes on each NPU, `neuron-ls` those on NeuronCores, `sudo lsof -w /dev/accel0` those on a
TPU.

## How to mend it

End what is left over and wait 10 s. Two jobs on one host need NPUs, and with HCCL_IF_BASE_PORT ports, of their own.

## Versions and sources

Holds for CANN 7 and 8 with torch_npu for torch 2.1 to 2.7. Source: Huawei, HCCL error codes, EJ0001, and
HCCL_IF_BASE_PORT; AWS Neuron, runtime troubleshooting. Of TPUs the words are those of reports: jax-ml/jax#10192,
pytorch/xla#3947.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP326", Severity.ERROR)


@log_pattern(
    r"Failed to initialize the HCCP process\. Reason: Maybe the last training process is running"
    r"|(?P<gaudi>synStatus=\d+ \[[\w ]+\] Device acquire failed)"
    r"|(?P<neuron>Neuron ?Core\(s\) not available - Requested:(?P<asked>[\w-]{1,20}) Available:(?P<free>\d+))"
    r"|listen on ip\[[^\]\n]*\] and specific port\[(?P<port>\d+)\] fail"
    r"|(?P<tpu>libtpu\.so already in use by another process probably|ABORTED: The TPU is already in use by process"
    r"|open\(/dev/(?:accel|vfio/)\d+\): (?:Device or resource busy|(?P<denied>Operation not permitted)))"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report what is held, the NPU or the port."""
    if match["gaudi"]:
        yield Finding(
            "no Gaudi card is free: other processes hold them, of an earlier training perhaps",
            (record.proof(match, "a free card for each rank"),),
            Fix("end what is left over, or start fewer ranks", command="hl-smi; sudo lsof /dev/accel/* | head"),
            record.place,
        )
        return
    if match["tpu"]:
        yield _of_a_tpu(record, match)
        return
    if match["neuron"]:
        yield _of_neuron_cores(record, match)
        return
    what = f"HCCL's port {match['port']}" if match["port"] else "the NPU"
    yield Finding(
        f"{what} is in use by another process, of an earlier training perhaps",
        (record.proof(match, "NPUs and ports that nobody else holds"),),
        Fix(
            "end what is left over, then wait 10 s",
            command="npu-smi info; ps -ef | grep [t]rain.py; kill -9 PID; sleep 10",
        ),
        record.place,
    )


def _of_neuron_cores(record: Record, match: re.Match[str]) -> Finding:
    return Finding(
        f"a process asks for NeuronCores ({match['asked']}) and {match['free']} are free: others hold them",
        (record.proof(match, "cores for each process, which no other one takes"),),
        Fix(
            "end what is left over, and leave it to the launcher which process takes which core",
            command="neuron-ls   # PID and COMMAND of who holds them\nkill -9 PID\n"
            "env | grep -E 'NEURON_RT_(NUM_CORES|VISIBLE_CORES)'   # torchrun needs neither",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a process of an earlier run, a notebook or a profiler still has the cores",
                "more processes are started than the instance has cores, or each asks for all of them",
                "the container was given fewer devices than it asks for (aws.amazon.com/neuron, --device=/dev/neuron0)",
            ),
            "neuron-ls; ls /dev/neuron*; env | grep NEURON_RT_",
        ),
    )


def _of_a_tpu(record: Record, match: re.Match[str]) -> Finding:
    return Finding(
        "the TPU is held by another process, of an earlier training perhaps"
        if not match["denied"]
        else "this process may not open the TPU's device",
        (record.proof(match, "a TPU that nobody else holds"),),
        Fix(
            "end what is left over; where nobody holds the device, remove the lock file, or start the machine anew",
            command="sudo lsof -w /dev/accel* /dev/vfio/*; kill -9 PID; sudo rm -f /tmp/libtpu_lockfile",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a process of an earlier run, which was interrupted, still has the device",
                "the container may not use the device (docker run --privileged --net=host)",
            )
            if match["denied"]
            else (
                "a process of an earlier run, or of another user, still has the device",
                "nobody has it, and the lock file of a run that was killed is there: /tmp/libtpu_lockfile",
            ),
            "sudo lsof -w /dev/accel* /dev/vfio/*; ls -l /tmp/libtpu_lockfile",
        ),
    )
