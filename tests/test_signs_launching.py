"""What the signs of launching, rendezvous, memory, GPUs and files make of messages of many programs and versions."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from ddpdoctor.check import Check, Instrument, Role, Sign
from ddpdoctor.explain.engine import Examination, examination
from ddpdoctor.explain.kept import Keeper
from ddpdoctor.explain.sources import Origin
from ddpdoctor.registry import find, load_checks
from ddpdoctor.trial import fixture

if TYPE_CHECKING:
    from ddpdoctor.explain.answer import Answer, Named

ALL = load_checks()
PREPARED = examination(ALL)


LABELS = """
rendezvous-env-missing launch-local-rank-hyphen launch-local-rank-arg-undefined port-in-use duplicate-rank-zero
manual-rank-wrong launcher-and-spawn-both stale-rendezvous-store missing-ranks-at-init worker-crash-elastic-restart
rdzv-host-not-recognised rdzv-id-missing rdzv-shared-between-jobs master-addr-wrong master-unreachable
hostname-resolution numeric-hostname ipv6-localhost-warning windows-hostname-socket process-group-not-initialized
syncbn-without-process-group process-group-initialized-twice sighup-terminal-closed killed-by-scheduler
slurm-gpu-binding slurm-task-count-mismatch gpu-request-exceeds-visible nproc-exceeds-gpus spawn-unpicklable-object
all-ranks-write-same-path host-oom-sigkill host-bad-alloc worker-segfault shm-too-small mmap-file-truncated fd-limit
gpu-hardware-fault device-side-assert cuda-driver-too-old cuda-arch-not-in-build missing-set-epoch cuda-oom
dataloader-native-crash worker-error-hidden-by-launcher disk-full
""".split()
OTHERS = ("master-unresolvable", "cpu-only-torch", "gpus-not-visible", "compute-mode")
MINE = tuple(check for check in ALL if {check.slug, *check.known_as} & {*LABELS, *OTHERS} and check.of(Instrument.SIGN))
DECLARED = [
    pattern
    for check in MINE
    for facet in check.of(Instrument.SIGN)
    if isinstance(facet.subject, Sign)
    for pattern in (facet.subject.pattern, *facet.subject.beside)
]


def _answer(text: str) -> Answer:
    examined = Examination(PREPARED.signs, Keeper(PREPARED.keeper.finder))
    examined.read(Origin("log"), [text.encode()])
    return examined.answer()


def _named(text: str) -> dict[str, Named]:
    """Give what all checks together say of a log, by slug; the first cause comes first."""
    return {each.check.slug: each for each in _answer(text).named}


JOINED = (
    "Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1 "
    "(world_size=4, worker_count=3, timeout=0:30:00)"
)
IN_USE = (
    "DistNetworkError: The server socket has failed to listen on any local network address. port: 29400, useIpv6: 0, "
    "code: -98, name: EADDRINUSE, message: address already in use"
)
NO_ANSWER = (
    "The client socket has failed to connect to any network address of (n03, 9). The client socket has failed to "
    "connect to n03:9 (errno: 110 - Connection timed out)."
)
TIMED_OUT = "RuntimeError: Timed out initializing process group in store based barrier on"
ABSENT_RANK = """Traceback (most recent call last):
  File "/srv/train.py", line 8, in main
    local_rank = int(os.environ.get("LOCAL_RANK"))
TypeError: int() argument must be a string, a bytes-like object or a real number, not 'NoneType'
"""
MESSAGES = [
    ("rendezvous-incomplete", "environment variable WORLD_SIZE expected, but not set"),
    ("rendezvous-incomplete", "KeyError: 'LOCAL_RANK'"),
    ("rendezvous-incomplete", "KeyError: 'NODE_RANK'"),
    ("rendezvous-incomplete", "KeyError: 'SLURM_PROCID'"),
    ("driver-too-old", "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)."),
    ("driver-too-old", "gpu1: NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"),
    ("gpu-not-in-build", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    (
        "gpu-not-in-build",
        "Tesla K40m with CUDA capability sm_35 is not compatible with the current PyTorch installation.",
    ),
    (
        "gpu-not-in-build",
        "Your installed torch==2.13.0 does not include kernels for this GPU. Reinstall the same version",
    ),
    ("cpu-only-torch", "AssertionError: Torch not compiled with CUDA enabled"),
    (
        "gpus-not-visible",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    ),
    ("compute-mode", "CUDA error: all CUDA-capable devices are busy or unavailable"),
    ("rendezvous-incomplete", ABSENT_RANK),
    ("host-oom-sigkill", "Killed"),
    ("host-oom-sigkill", "run.sh: line 12:  4711 Killed                  python train.py"),
    ("worker-segfault", "run.sh: line 12:  4711 Segmentation fault (core dumped) python train.py"),
    ("worker-segfault", "[n1:47110:0:47110] Caught signal 11 (Segmentation fault: address not mapped to object)"),
    ("launch-local-rank-hyphen", "ERROR: Could not consume arg: --local-rank=0"),
    ("small-shm", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that"),
    ("small-shm", "RuntimeError: unable to write to file </torch_4711_1>: No space left on device (28)"),
    ("small-shm", "failed (exitcode: -7) local_rank: 2 (pid: 12) of binary: /usr/bin/python"),
    ("open-files-limit", "OSError: [Errno 24] Too many open files: '/data/x.jpg'"),
    ("open-files-limit", "RuntimeError: Too many open files. Communication with the workers is no longer possible."),
    (
        "small-shm",
        "RuntimeError: unable to open shared memory object </torch_7> in read-write mode: No space left on device (28)",
    ),
    ("missing-ranks-at-init", "DistStoreError: wait timeout after 4000ms, keys: /default_pg/0//cpu//0/3"),
    ("nccl-without-gpu", "RuntimeError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!"),
    (
        "spawn-without-main-guard",
        "RuntimeError: \n        An attempt has been made to start a new process before the\n",
    ),
    ("sampler-wrong-rank", "ValueError: Invalid rank 4, rank should be in the interval [0, 3]"),
    (
        "saved-on-missing-gpu",
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
    ),
    (
        "open-files-limit",
        "RuntimeError: unable to open shared memory object </torch_7> in read-write mode: Too many open files (24)",
    ),
    ("disk-space", "OSError: [Errno 28] No space left on device: '/tmp/ray/session'"),
    ("disk-space", "RuntimeError: PytorchStreamWriter failed writing file data/23: file write failed"),
    ("host-oom-sigkill", "  exitcode  : -9 (pid: 88)"),
    (
        "host-oom-sigkill",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
    ),
    ("host-oom-sigkill", "subprocess.CalledProcessError: Command '['python', 'a.py']' died with <Signals.SIGKILL: 9>."),
    (
        "host-oom-sigkill",
        "[2025-01-01 10:00:00,000] [ERROR] [launch.py:321:sigkill_handler] exits with return code = -9",
    ),
    ("host-oom-sigkill", "RuntimeError: DataLoader worker (pid 31) is killed by signal: Killed."),
    ("host-oom-sigkill", "slurmstepd: error: Detected 1 oom_kill event in StepId=8.0. Some of the step tasks"),
    ("host-oom-sigkill", "[12.1] Out of memory: Killed process 88 (python) total-vm:1kB, anon-rss:1kB"),
    ("host-bad-alloc", "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("host-bad-alloc", "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 93.1 GiB for an array"),
    ("worker-segfault", "traceback : Signal 11 (SIGSEGV) received by PID 4711"),
    ("worker-segfault", "failed (exitcode: -11) local_rank: 5 (pid: 12) of binary: /usr/bin/python"),
    ("worker-segfault", "Fatal Python error: Segmentation fault"),
    ("dataloader-native-crash", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Aborted."),
    ("dataloader-native-crash", "RuntimeError: DataLoader worker (pid 9) is killed by signal: Terminated."),
    ("dataloader-native-crash", "RuntimeError: DataLoader worker (pid(s) 7, 8) exited unexpectedly"),
    ("ranks-beyond-gpus", "RuntimeError: CUDA error: invalid device ordinal"),
    ("gpu-hardware-fault", "Unable to determine the device handle for GPU 0000:41:00.0: Unknown Error"),
    ("gpu-hardware-fault", "[1.2] NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', GPU has fallen off the bus."),
    ("gpu-hardware-fault", "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution"),
    ("device-side-assert", "RuntimeError: CUDA error: device-side assert triggered"),
    (
        "cuda-oom",
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9 GiB",
    ),
    ("cuda-oom", "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB."),
    ("gpu-request-exceeds-visible", "You requested GPUs: [2, 3]\nBut your machine only has: [0, 1]"),
    ("port-in-use", "RuntimeError: Address already in use"),
    ("port-in-use", IN_USE),
    (
        "port-in-use",
        "DistNetworkError: Ping failed, invalid value returned from server. Expected: 6830, Got: 1347703880",
    ),
    ("master-unreachable", "The client socket has timed out after 900s while trying to connect to (10.0.0.7, 29500)."),
    ("master-unreachable", "The client socket has timed out after 60000ms while trying to connect to 10.0.0.7:29500"),
    ("master-elsewhere", "The client socket has timed out after 60s while trying to connect to (<master-ip>, 29500)."),
    ("hostname-resolution", NO_ANSWER),
    ("numeric-hostname", "The client socket has failed to connect to any network address of (05, 40323)."),
    (
        "windows-hostname-socket",
        "[W socket.cpp] The client socket has failed to connect to [PC]:9 (system error: 10049 - x)",
    ),
    ("ipv6-localhost-warning", "The client socket has failed to connect to [localhost]:9 (errno: 99 - Cannot assign)"),
    ("rdzv-host-not-recognised", "RendezvousConnectionError: The connection to the C10d store has failed. See inner"),
    ("missing-ranks-at-init", "DistStoreError: Timed out after 301 seconds waiting for clients. 7/8 clients joined."),
    ("missing-ranks-at-init", "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"),
    (
        "missing-ranks-at-init",
        f"{TIMED_OUT} rank 3, for key: store_based_barrier_key:default_pg (world_size=8, num_workers_joined=5, ",
    ),
    (
        "stale-rendezvous-store",
        f"{TIMED_OUT} rank: 3, for key: store_based_barrier_key:1 (world_size=8, worker_count=9, timeout=0:30:00)",
    ),
    (
        "worker-crash-elastic-restart",
        f"{TIMED_OUT} rank: 3, for key: store_based_barrier_key:1 (world_size=8, worker_count=32, timeout=0:30:00)",
    ),
    (
        "launcher-and-spawn-both",
        f"{TIMED_OUT} rank: 2, for key: store_based_barrier_key:1 (world_size=2, worker_count=3, ",
    ),
    (
        "worker-error-hidden-by-launcher",
        "subprocess.CalledProcessError: Command '['python', 'a.py']' returned non-zero exit status 1.",
    ),
    ("launch-local-rank-hyphen", "error: unrecognized arguments: --foo --local-rank=3"),
    ("launch-local-rank-hyphen", "are not used by the HfArgumentParser: ['--local-rank=0']"),
    ("launch-local-rank-arg-undefined", "error: unrecognized arguments: --local_rank=3"),
    ("launch-local-rank-arg-undefined", "FATAL Flags parsing error: Unknown command line flag 'local_rank'"),
    ("process-group-not-initialized", "RuntimeError: Default process group is not initialized"),
    ("process-group-initialized-twice", "ValueError: trying to initialize the default process group twice!"),
    ("sighup-terminal-closed", "Sending process 10 closing signal SIGHUP"),
    ("sighup-terminal-closed", "SignalException: Process 9 got signal: 1"),
    ("sighup-terminal-closed", "Received Signals.SIGHUP death signal, shutting down workers"),
    ("killed-by-scheduler", "Received Signals.SIGTERM death signal, shutting down workers"),
    (
        "killed-by-scheduler",
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-01-01T10:00:00 DUE TO PREEMPTION ***",
    ),
    ("slurm-task-count-mismatch", "You requested 4 GPUs but launched 2 slurm tasks."),
    (
        "slurm-task-count-mismatch",
        "You set `--ntasks=8` in your SLURM bash script, but this variable is not supported.",
    ),
    ("spawn-unpicklable-object", "AttributeError: Can't get local object 'main.<locals>.<lambda>'"),
    ("spawn-unpicklable-object", "PicklingError: Can't pickle local object <function main.<locals>.work at 0x7f00>"),
    ("all-ranks-write-same-path", "FileExistsError: [Errno 17] File exists: 'runs/exp1'"),
    ("worker-error-hidden-by-launcher", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"),
    ("worker-error-hidden-by-launcher", "failed (exitcode: 1) local_rank: 0 (pid: 3) of binary: /usr/bin/python"),
    ("manual-rank-wrong", "$ RANK=1 WORLD_SIZE=1 python train.py"),
]
HARMLESS = [
    "UserWarning: You requested 2s GPUs but launched 0s slurm tasks. If you're not using SLURM, ignore this message!",
    "KeyError: 'rank'",
    "NCCL INFO cudaDriverVersion 12080",
    "| NVIDIA-SMI 550.54   Driver Version: 550.54   CUDA Version: 12.4 |",
    "DRAM Uncorrectable ECC errors : 0",
    "NVRM: Xid (PCI:0000:17:00): 13, pid=3, Graphics SM Warp Exception",
    "[W socket.cpp] The client socket has failed to connect to 10.0.0.7:29500 (errno: 111 - Connection refused).",
    "[W socket.cpp] The IPv6 network addresses of (n1, 29500) cannot be retrieved (gai error: -2 - Name or service",
    "INFO: Added key: store_based_barrier_key:1 to store for rank: 0",
    JOINED,
    "WARNING:torch.distributed.launcher.api:config has no run_id, generated a random run_id: 17",
    "The node 'n1_3_0' has failed to shutdown the rendezvous 'none' due to an error of type RendezvousConnectionError.",
    "Sending process 165 closing signal SIGTERM",
    "Received 2 death signal, shutting down workers",
    "Unable to shutdown process 4 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL",
    "[2025-01-01] [launch.py:348:main] Process 81 exits successfully.",
    "failed (exitcode: 0) is no failure",
    "OSError: [Errno 98] Address already in use: gradio at 7860",
    "FileNotFoundError: [Errno 2] No such file or directory: 'config.yaml'",
    "TypeError: cannot pickle '_thread.lock' object",
    "[RANK=3] WORLD_SIZE=8 starts",
    "NCCL WARN Call to posix_fallocate failed : No space left on device",
    "You are using a CUDA device ('NVIDIA A100') that has Tensor Cores.",
    "srun: job 7 queued and waiting for resources",
]


@pytest.mark.parametrize(("slug", "text"), MESSAGES, ids=lambda value: value[:40])
def test_a_message_alone_names_its_check_and_no_other(slug: str, text: str) -> None:
    """The wording of each version and program is known, and no two checks claim the same message."""
    assert set(_named(text)) == {slug}


@pytest.mark.parametrize("text", HARMLESS)
def test_what_healthy_programs_print_names_nothing(text: str) -> None:
    """Similar words without the fault raise no alarm."""
    assert not {check.slug for check in MINE} & set(_named(text))


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.slug)
class TestEachSign:
    """What holds for every sign of this part."""

    def test_it_is_first_in_its_patient(self, check: Check) -> None:
        """In a whole log, where all checks compete, the ailment is the answer, with something to paste."""
        answer = _answer(fixture(check, "patient.log").read_text())

        assert answer.unknown is None
        assert answer.named[0].check is check
        assert answer.named[0].finding.fix.command or answer.named[0].finding.fix.diff

    def test_it_leaves_its_control_alone(self, check: Check) -> None:
        """In the near miss it is not named."""
        assert check.slug not in _named(fixture(check, "control.log").read_text())

    def test_it_explains_others_only(self, check: Check) -> None:
        """Each name among the consequences is that of another check."""
        explained = {
            slug
            for facet in check.of(Instrument.SIGN)
            if isinstance(facet.subject, Sign)
            for slug in facet.subject.explains
        }

        assert not explained & {check.slug, *check.known_as}
        assert all(find(ALL, name) for name in explained)


@pytest.mark.parametrize("name", LABELS)
def test_the_ailments_are_found_by_the_names_that_people_use(name: str) -> None:
    """Each known ailment of this part has a check, under this name or as another name of it."""
    assert find(ALL, name) is not None


@pytest.mark.parametrize("pattern", DECLARED, ids=lambda pattern: pattern.pattern[:40])
def test_no_pattern_is_slow_on_long_lines(pattern: re.Pattern[str]) -> None:
    """A line of 20,000 characters that nearly match takes no time to speak of."""
    words = ("a", "x.", "rank 1 ", "RANK=1 ", "(errno: 9", "torchrun train.py --rank ", "socket has failed to listen ")
    start = time.process_time()
    for word in words:
        pattern.search(word * (20000 // len(word)))

    assert time.process_time() - start < 0.5


def test_the_number_of_the_exit_status_decides() -> None:
    """-7, -9 and -11 are three different stories, and -15 is none."""
    line = "failed (exitcode: {}) local_rank: 1 (pid: 4711) of binary: /usr/bin/python3"

    assert [set(_named(line.format(code))) for code in (-7, -9, -11, -15)] == [
        {"small-shm"},
        {"host-oom-sigkill"},
        {"worker-segfault"},
        set(),
    ]


def test_an_error_of_a_peer_does_not_hide_that_the_failed_rank_said_nothing() -> None:
    """That rank 0 lost its connection explains nothing about rank 1, which ended; where rank 0 ended, it does."""
    lost = "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:13185."
    failed = "failed (exitcode: 3) local_rank: {} (pid: 32113) of binary: /usr/bin/python"

    assert "worker-error-hidden-by-launcher" in _named(f"{lost}\n{failed.format(1)}")
    assert "worker-error-hidden-by-launcher" not in _named(f"{lost}\n{failed.format(0)}")


def test_what_answered_in_place_of_the_store_is_told() -> None:
    """The number in the message is what a web server says."""
    said = _named("DistNetworkError: Ping failed, invalid value returned from server. Expected: 1, Got: 1347703880")

    assert said["port-in-use"].finding.message.endswith("it says HTTP")


def test_mp_spawn_below_torchrun_is_told_from_a_port_that_others_hold() -> None:
    """The same refusal of the port: with mp.spawn and a launcher in the log, both of them are the cause."""
    alone = f"""Traceback (most recent call last):
  File "/srv/fit.py", line 7, in <module>
    mp.spawn(work, nprocs=2)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "/srv/fit.py", line 5, in work
    dist.init_process_group("gloo")
torch.distributed.{IN_USE}
"""
    below = f"{alone}failed (exitcode: 1) local_rank: 1 (pid: 3) of binary: /usr/bin/python\nChildFailedError:\n"

    assert next(iter(_named(alone))) == "port-in-use"
    assert next(iter(_named(below))) == "launcher-and-spawn-both"


def test_a_file_that_is_there_already_leaves_no_doubt_about_the_store() -> None:
    """A count above the world size has several causes; a file:// store that an earlier run left is one."""
    count = f"{TIMED_OUT} rank: 0, for key: store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:02:00)"
    doubted = _named(count)["stale-rendezvous-store"].finding
    sure = _named(f"File already exists: output.tmp/dist_init\n{count}")["stale-rendezvous-store"].finding

    assert doubted.doubt is not None
    assert sure.doubt is None


def test_sigterm_after_a_failure_is_not_the_schedulers() -> None:
    """The order decides: a signal that follows a failed rank belongs to the clean-up."""
    signal = "Received 15 death signal, shutting down workers"
    failure = "failed (exitcode: -11) local_rank: 1 (pid: 4711) of binary: /usr/bin/python3"

    assert "killed-by-scheduler" in _named(f"{signal}\n{failure}")
    assert "killed-by-scheduler" not in _named(f"{failure}\n{signal}")


def test_a_killed_rank_is_sure_when_the_kernel_says_so() -> None:
    """Exit status -9 alone leaves several causes; with the kernel's line nothing is left open."""
    exit_status = "failed (exitcode: -9) local_rank: 1 (pid: 88) of binary: /usr/bin/python3"
    kernel = "Out of memory: Killed process 88 (python3) total-vm:1kB"
    alone = _named(exit_status)["host-oom-sigkill"]
    sure = _named(f"{exit_status}\n{kernel}")["host-oom-sigkill"]

    assert alone.finding.doubt is not None
    assert (sure.role, sure.finding.doubt) == (Role.CAUSE, None)


def test_the_places_of_a_missing_gpu_are_named() -> None:
    """The ranks that failed tell how many GPUs there are."""
    text = "\n".join(f"[rank{rank}]: RuntimeError: CUDA error: invalid device ordinal" for rank in (4, 5, 6, 7))
    finding = _named(text)["ranks-beyond-gpus"].finding

    assert finding.message.startswith("rank 4, 5, 6, 7 ")
    assert finding.evidence[0].expected == "at most 4 ranks a host"
    assert finding.doubt is None
