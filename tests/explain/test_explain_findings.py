# ruff: noqa: E501 - messages stand in one line, as they are printed
"""What ``explain`` says besides the name of the check: who, where, how sure, and what is left open."""

from __future__ import annotations

import pytest
from helpers import CHECKS, answered, named, wait

from ddpdoctor.facets import Role
from ddpdoctor.logs.answer import Confidence
from ddpdoctor.logs.examination import explain
from ddpdoctor.logs.read.sources import Origin
from ddpdoctor.selftest.corpus import UNDECIDABLE, Case, corpus

NCCL = "node-a:41211:41402 [1] "
FAILED = "failed (exitcode: {}) local_rank: {} (pid: 4711) of binary: /usr/bin/python3"

CALLED = """\
Traceback (most recent call last):
  File "/home/li/train.py", line 18, in main
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 9, in f
"""


class TestLaunching:
    """Ranks that ended, and what ended them."""

    def test_an_error_of_a_peer_does_not_hide_that_the_failed_rank_said_nothing(self) -> None:
        """That rank 0 lost its connection explains nothing about rank 1, which ended; where rank 0 ended, it does."""
        lost = "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:13185."

        assert "worker-error-hidden-by-launcher" in named(f"{lost}\n{FAILED.format(3, 1)}")
        assert "worker-error-hidden-by-launcher" not in named(f"{lost}\n{FAILED.format(3, 0)}")

    @pytest.mark.parametrize(
        "raised",
        [
            "ValueError: bad",
            "Oops: custom",
            "lib.errors.Broken: x",
            "StopIteration",
            "_queue.Empty",
            "subprocess.TimeoutExpired: 9 s",
        ],
    )
    def test_an_error_is_not_called_hidden_below_that_very_error(self, raised: str) -> None:
        """Whatever its class is called."""
        log = f'Traceback (most recent call last):\n  File "t.py", line 1, in f\n{raised}\n{FAILED.format(1, 1)}\n'

        assert "worker-error-hidden-by-launcher" not in named(log)
        assert "worker-error-hidden-by-launcher" in named(FAILED.format(1, 1))

    @pytest.mark.parametrize(
        "refusal",
        [
            "train.py: error: the following arguments are required: --data",
            "Error: Missing option '--data'.",
            "[default1]:fit.py: error: unrecognized arguments: --epoch=3",
        ],
    )
    def test_arguments_that_a_script_refused_are_told(self, refusal: str) -> None:
        """The parser's line is the proof, and leaves nothing open; of another exit status it is no error."""
        finding = named(f"usage: train.py [-h] --data DATA\n{refusal}\n{FAILED.format(2, 1)}\n")[
            "script-arguments-refused"
        ].finding
        other = named(f"{refusal}\n{FAILED.format(1, 1)}\n")

        assert "refuses its command line: " in finding.message
        assert finding.evidence[0].seen in refusal
        assert finding.ambiguity is None
        assert "script-arguments-refused" not in other

    def test_sigterm_after_a_failure_is_not_the_schedulers(self) -> None:
        """The order decides: a signal that follows a failed rank belongs to the clean-up."""
        signal = "Received 15 death signal, shutting down workers"

        assert "killed-by-scheduler" in named(f"{signal}\n{FAILED.format(-11, 1)}")
        assert "killed-by-scheduler" not in named(f"{FAILED.format(-11, 1)}\n{signal}")

    def test_a_killed_rank_is_sure_when_the_kernel_says_so(self) -> None:
        """Exit status -9 alone leaves several causes; with the kernel's line nothing is left open."""
        kernel = "Out of memory: Killed process 4711 (python3) total-vm:1kB"
        alone = named(FAILED.format(-9, 1))["host-oom-sigkill"]
        sure = named(f"{FAILED.format(-9, 1)}\n{kernel}")["host-oom-sigkill"]

        assert alone.finding.ambiguity is not None
        assert (sure.role, sure.finding.ambiguity) == (Role.CAUSE, None)

    def test_what_answered_in_place_of_the_store_is_told(self) -> None:
        """The number in the message is what a web server says."""
        said = named("DistNetworkError: Ping failed, invalid value returned from server. Expected: 1, Got: 1347703880")

        assert said["master-port-in-use"].finding.message.endswith("it says HTTP")

    def test_a_file_that_is_there_already_leaves_no_ambiguity_about_the_store(self) -> None:
        """A count above the world size has several causes; a file:// store that an earlier run left is one."""
        count = (
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
            "store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:02:00)"
        )
        open_ = named(count)["stale-rendezvous-store"].finding
        sure = named(f"File already exists: output.tmp/dist_init\n{count}")["stale-rendezvous-store"].finding

        assert open_.ambiguity is not None
        assert sure.ambiguity is None


class TestGpus:
    """GPUs are named as their user knows them."""

    def test_the_places_of_a_missing_gpu_are_named(self) -> None:
        """The ranks that failed tell how many GPUs there are."""
        text = "\n".join(f"[rank{rank}]: RuntimeError: CUDA error: invalid device ordinal" for rank in (4, 5, 6, 7))
        finding = named(text)["more-ranks-than-gpus"].finding

        assert finding.message.startswith("rank 4, 5, 6, 7 ")
        assert finding.evidence[0].expected == "at most 4 ranks a host"
        assert finding.ambiguity is None

    def test_the_gpu_is_named_as_nvidia_smi_does(self) -> None:
        """NCCL's number becomes a PCI address."""
        text = "Duplicate GPU detected : rank 5 and rank 1 both on CUDA device e2000"
        finding = named(text)["duplicate-gpu"].finding

        assert "ranks 1 and 5" in finding.message
        assert "0000:e2:00.0" in finding.message

    @pytest.mark.parametrize(
        ("call", "passes_on", "named_by"),
        [
            ("torch.load(path)", "location", "the checkpoint was saved from"),
            ("torch.load(path, map_location=move)", "location", "the checkpoint was saved from"),
            ("torch.load(path, map_location=device)", "map_location", "map_location names"),
            ("torch.load(path, map_location=device)", "str(map_location)", "map_location names"),
            ("torch.load(path, map_location=device)", "", "map_location names"),
        ],
    )
    def test_a_missing_device_is_that_of_the_file_or_of_map_location(
        self, call: str, passes_on: str, named_by: str
    ) -> None:
        """The lines of the traceback tell which one torch was given."""
        inner = f'  File "/x/site-packages/torch/serialization.py", line 9, in f\n    default_restore_location(storage, {passes_on})\n'
        log = (
            f'Traceback (most recent call last):\n  File "t.py", line 4, in f\n    {call}\n{inner if passes_on else ""}'
            "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If\n"
        )
        cause = answered(log).cause

        assert cause is not None
        assert cause.finding.message == f"{named_by} a CUDA device, and the process sees none"


REFUSED = "[../gloo/transport/tcp/pair.cc:799] connect [127.0.0.1]:3210: Connection refused"
RAISED = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 18, in main\nValueError: bad label\n'


class TestTransport:
    """Connections that do not come about, or break."""

    def test_the_interface_is_blamed_only_where_it_is_virtual(self) -> None:
        """A time-out through docker0 is the interface's fault; elsewhere a firewall remains possible."""
        failed = "\nNCCL WARN socketStartConnect: Connect to {}<41002> failed : Connection timed out"
        bridges = f"{NCCL}NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0> [1]br-05ab815fa14e:172.19.0.1<0>"
        cause = answered(bridges + failed.format("172.19.0.7")).cause

        assert cause is not None
        assert (cause.check.slug, cause.role, cause.finding.ambiguity) == ("interface-unreachable", Role.CAUSE, None)
        assert "br-05ab815fa14e (172.19.0.1)" in cause.finding.message
        for shown in (bridges, f"{NCCL}NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>"):
            cause = answered(shown + failed.format("10.0.0.3")).cause
            assert cause is not None
            assert (cause.check.slug, cause.role) == ("interface-unreachable", Role.CAUSE)
            assert cause.finding.ambiguity is not None
            assert len(cause.finding.ambiguity.causes) == 3

    def test_what_nccl_said_besides_the_class_is_quoted(self) -> None:
        """An unspecified error shows the WARN line, or what stands after Last error."""
        error = "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'out of memory'\n"
        finding = named(f"{CALLED}torch.distributed.DistBackendError: {error}")[
            "nccl-unhandled-cuda-unspecified"
        ].finding

        assert "Cuda failure 'out of memory'" in finding.message
        assert finding.ambiguity is None
        assert "leave room" in finding.fix.summary

    def test_a_warning_of_nccl_that_does_not_stop_it_explains_nothing(self) -> None:
        """Hosts without InfiniBand warn that its library is missing, and work."""
        warning = "misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]"
        said = named(f"{warning}\nncclSystemError: System call (socket) failed.")

        assert "libibverbs" not in said["nccl-system-error-unspecified"].finding.message

    @pytest.mark.parametrize(
        ("log", "confidence"),
        [
            (f"  group_world_size=2\n{REFUSED}", Confidence.CERTAIN),
            (f"+ torchrun --nnodes=2 --nproc_per_node 8 train.py\n{REFUSED}", Confidence.CERTAIN),
            (f"  group_world_size=1\n{REFUSED}", Confidence.UNDECIDABLE),
            (f"+ torchrun --nnodes=1:4 train.py\n{REFUSED}", Confidence.UNDECIDABLE),
            (REFUSED, Confidence.UNDECIDABLE),
        ],
    )
    def test_a_loopback_peer_is_proof_only_between_hosts(self, log: str, confidence: Confidence) -> None:
        """On one host the same words come from a peer that ended, or from a store that outlived it."""
        answer = answered(log)

        assert answer.cause is not None
        assert (answer.cause.check.slug, answer.confidence) == ("hostname-loopback", confidence)

    def test_an_error_before_a_loopback_peer_comes_first(self) -> None:
        """After an elastic restart a rank is told the address of the one that has ended, on several hosts, too."""
        unknown = answered(f"  group_world_size=2\n{RAISED}{REFUSED}").unknown

        assert unknown is not None
        assert unknown.record.error == "ValueError"

    def test_a_refused_connection_over_loopback_is_the_interfaces_fault_on_several_hosts_only(self) -> None:
        """On one host loopback is where the peers are."""
        used = b"NCCL INFO NET : Using interface lo:127.0.0.1<0>\n"
        failed = b"NCCL WARN Call to connect timeout : Connection refused\n"
        other, this = (Origin(f"{node}.log", node=node) for node in ("a", "b"))
        several = explain([(other, [used]), (this, [used, failed])], CHECKS)
        one = explain([(this, [used, failed])], CHECKS)

        assert [each.cause and each.cause.check.slug for each in (several, one)] == [
            "interface-unreachable",
            "peer-connection-lost",
        ]

    def test_what_comes_of_the_end_of_a_training_is_harmless(self) -> None:
        """Rank 0 leaves first; the others' last words are noise then, and a consequence before. So is what torch warns of."""
        gone = "[rank1]:[W TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=67, addr=[a]:36214, remote=[b]:43145): Broken pipe"
        left = "WARNING: destroy_process_group() was not called before program exit, which can leak resources."
        logs = (gone, f"{{'train_runtime': 5121.4}}\n{gone}", left)

        assert [(slug, each.role) for log in logs for slug, each in named(log).items()] == [
            ("rank0-exited-store-gone", Role.CONSEQUENCE),
            ("rank0-exited-store-gone", Role.HARMLESS),
            ("teardown-hang", Role.HARMLESS),
        ]


HEART = (
    "[rank{0}]:[E ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank {0}] ProcessGroupNCCL's watchdog got stuck "
    "for 480 seconds without making progress in monitoring enqueued collectives.\n"
)
PRINT = "CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[{}], TensorDtypes=Float)"
UNDECIDED = [case for case in corpus() if case.labels == {"collective-timeout"} and UNDECIDABLE in case.flags]
BACKWARD = '  File "/x/site-packages/torch/autograd/graph.py", line 9, in _engine_run_backward\n'


class TestHangs:
    """Time-outs and mismatches of collectives."""

    @pytest.mark.parametrize("case", UNDECIDED, ids=lambda case: case.name)
    def test_a_time_out_without_proof_stays_undecided(self, case: Case) -> None:
        """The causes that remain are listed, with the command that tells them apart; none is picked."""
        cause = answered(case.log).cause

        assert cause is not None
        assert (cause.check.slug, cause.role) == ("collective-timeout", Role.GENERIC)
        assert cause.finding.ambiguity is not None
        assert len(cause.finding.ambiguity.causes) > 2
        assert cause.finding.ambiguity.command

    def test_one_story_is_told_once(self) -> None:
        """Eight ranks that time out make one finding, which names them."""
        answer = answered("".join(wait(rank, 90) for rank in range(8)) * 3)

        assert len(answer.named) == 1
        assert "ranks 0, 1, 2, 3, 4, 5, 6, 7 wait in collective 90" in answer.named[0].finding.message

    @pytest.mark.parametrize(
        ("log", "rank"),
        [
            ("".join(wait(rank, 9, "_ALLGATHER_BASE", 10, 40) for rank in (0, 1, 3)), 2),
            ("are waiting for remainder of ranks for more than 60 seconds. [ready ranks: 0, 1, 3]", 2),
            (
                "are waiting for remainder of ranks for more than 60 seconds.\nMissing ranks:\n3!: [cond/HorovodAllreduce_grads_0]",
                3,
            ),
        ],
        ids=["of a gathering collective", "of Horovod", "of a newer Horovod"],
    )
    def test_the_silent_rank_is_named(self, log: str, rank: int) -> None:
        """A gathering collective tells how large the group is; Horovod tells who is missing."""
        assert answered(log).named[0].finding.place.rank == rank

    def test_an_earlier_cause_keeps_the_heartbeat_quiet(self) -> None:
        """A heartbeat that follows time-outs adds nothing."""
        assert set(named(wait(0, 90) + HEART.format(0))) == {"collective-timeout"}

    @pytest.mark.parametrize(
        ("frames", "slug"),
        [(CALLED, "collective-shape-mismatch"), (CALLED + BACKWARD, "ranks-take-different-branches")],
        ids=["a collective of the user's own", "backward"],
    )
    def test_large_flat_tensors_are_gradients_only_where_torch_reduces_them(self, frames: str, slug: str) -> None:
        """A collective of the user's own is no bucket of gradients."""
        one, other = PRINT.format(40000), PRINT.format(20000)
        said = (
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
            f"{one}, but Rank 0 is running collective: {other}.Collectives differ in the following aspects: "
        )

        assert list(named(frames + said)) == [slug]


def test_a_state_of_another_number_of_ranks_is_told_by_the_multiple() -> None:
    """FSDP's flat shards, padded by less than an element for each rank; not of small sizes."""
    step = (
        "Traceback (most recent call last):\n"
        '  File "/v/lib/python3.10/site-packages/torch/optim/adamw.py", line 270, in _single_tensor_adamw\n'
        "    exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)\n"
        "RuntimeError: The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension 0\n"
    )

    def causes(one: int, other: int) -> str:
        cause = answered(step.format(one, other)).cause
        assert cause is not None
        assert cause.finding.ambiguity is not None
        return cause.finding.ambiguity.causes[0]

    assert "4 times fewer ranks" in causes(56124554, 14031139)
    assert "4 times more ranks" in causes(14031139, 56124554)
    assert "flat shard" not in causes(512, 64)
    assert "flat shard" not in causes(56124554, 14031500)


def test_a_quota_is_told_from_a_full_disk() -> None:
    """By the number of the error."""
    log = "Traceback (most recent call last):\n  File '/w/t.py', line 1, in f\nOSError: [Errno {}] {}\n"
    quota, full = (
        answered(log.format(*each)).cause for each in ((122, "Disk quota exceeded"), (28, "No space left on device"))
    )

    assert quota is not None
    assert full is not None
    assert "quota -s" in quota.finding.fix.command
    assert "quota -s" not in full.finding.fix.command


def test_what_a_library_said_before_its_worker_was_aborted_is_quoted() -> None:
    """The worker's own last words are the only hint at the library."""
    log = (
        "LLVM ERROR: pthread_join failed: Invalid argument\n"
        "[rank4]: RuntimeError: DataLoader worker (pid 69916) is killed by signal: Aborted. \n"
    )
    cause = answered(log).cause

    assert cause is not None
    assert "LLVM ERROR" in cause.finding.message
