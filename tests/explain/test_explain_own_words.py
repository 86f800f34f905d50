# ruff: noqa: E501 - messages stand in one line, as they are printed
"""What an answer takes from the log: its numbers, its file names, its launcher and its system."""

from __future__ import annotations

from helpers import answered, named

from ddpdoctor.logs.unknown.next_steps import next_step

SHAPES = '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/w/fit.py", line 7, in main\n[rank0]:     net.load_state_dict(state)\n[rank0]: RuntimeError: Error(s) in loading state_dict for Net:\n[rank0]: \tsize mismatch for {key}: copying a param with shape torch.Size([{file}]) from checkpoint, the shape in current model is torch.Size([{model}]).\n'


def pasted(slug: str, log: str) -> str:
    """Return what a check says of a log, and everything that its fix says."""
    finding = named(log)[slug].finding
    return f"{finding.message}\n{finding.fix.summary}\n{finding.fix.command}\n{finding.fix.diff}"


def test_a_checkpoint_and_a_script_are_called_by_their_names() -> None:
    """As the log has them; where it has none, by names that stand for them."""
    shapes = SHAPES.format(key="0.weight", file="32, 16", model="64, 16")
    known = pasted("checkpoint-architecture-mismatch", "[0] resuming from runs/w32.pt at step 100\n" + shapes)

    assert "inspect runs/w32.pt --keys" in known
    assert "--model fit.py:build_model" in known
    assert "1 tensor has another shape" in known
    assert "inspect last.pt" in pasted("checkpoint-architecture-mismatch", shapes)


def test_another_vocabulary_is_told_by_its_numbers() -> None:
    """Where the rows of an embedding alone differ; another width is another network."""
    words = pasted(
        "checkpoint-architecture-mismatch", SHAPES.format(key="emb.embeddings.weight", file="900, 8", model="700, 8")
    )
    width = pasted(
        "checkpoint-architecture-mismatch", SHAPES.format(key="emb.embeddings.weight", file="900, 8", model="700, 4")
    )

    assert "900 words in the file, 700 in the model" in words
    assert "vocabulary" not in width


def test_slots_are_asked_for_in_the_number_and_by_the_launcher_of_the_log() -> None:
    """As many as the message names; of Slurm where the log is of a job of it."""
    few = "There are not enough slots available in the system to satisfy the 6 slots\n"

    assert "mpirun -np 6 --host localhost:6" in pasted("scheduler-has-not-the-resources", few)
    assert "horovodrun -np 6 -H localhost:6" in pasted(
        "scheduler-has-not-the-resources", f"+ horovodrun -np 6 python train.py\n{few}"
    )
    assert pasted("scheduler-has-not-the-resources", f"srun: job 7 queued\n{few}").count("#SBATCH --ntasks=6") == 1


def test_windows_is_not_taken_for_a_jetson() -> None:
    """By the paths of the traceback."""
    error = "AttributeError: module 'torch.distributed' has no attribute 'init_process_group'\n"
    frames = 'Traceback (most recent call last):\n  File "{}", line 3, in main\n    dist.init_process_group()\n'

    assert "Windows" in pasted("distributed-not-built", frames.format("C:\\w\\train.py") + error)
    assert "Jetson" in pasted("distributed-not-built", frames.format("/w/train.py") + error)


def test_the_gpu_that_is_full_is_named_and_what_others_hold_of_it() -> None:
    """Old torch counts what it keeps beside what is allocated."""
    said = "RuntimeError: CUDA out of memory. Tried to allocate 90.00 MiB (GPU 3; 11.00 GiB total capacity; {}; 0 bytes free; {} cached)"

    others = pasted("cuda-oom", said.format("512.00 MiB already allocated", "512.00 MiB"))
    own = pasted("cuda-oom", said.format("6.00 GiB already allocated", "4.00 GiB"))

    assert "no memory left on GPU 3 for 90.00 MiB; 10.0 GiB of the GPU are held outside" in others
    assert "nvidia-smi" in others
    assert "outside" not in own


def test_a_local_rank_is_refused_by_the_script_of_the_log() -> None:
    """Argparse names the script."""
    assert "--nproc_per_node=2 fit_gen.py" in pasted(
        "local-rank-option-undefined", "fit_gen.py: error: unrecognized arguments: --local_rank=2\n"
    )


def test_ranks_that_failed_too_are_not_said_to_have_waited() -> None:
    """Rank 1's own traceback has lost its end; a folder beside the script explains that of rank 0."""
    told = answered(
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/w/train.py", line 5, in <module>\n'
        "[rank0]:     wandb.init()\n"
        "[rank0]: AttributeError: module 'wandb' has no attribute 'init'\n"
        '[rank1]:   File "/w/train.py", line 9, in <module>\n'
    ).unknown
    assert told is not None

    step = next_step(told)

    assert "folder wandb/" in step.summary
    assert "waited" not in step.summary


def test_a_restart_on_one_host_does_not_make_it_several() -> None:
    """The address of a peer that is gone is what followed from the error before."""
    log = (
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/w/train.py", line 5, in <module>\n'
        "[rank1]:     step()\n"
        "[rank1]: ZeroDivisionError: division by zero\n"
        "[/gloo/transport/tcp/debug_logger.cc:9] ERROR failed to connect, willRetry=1, retry=1, retryLimit=3, rank=1, size=2, local=[127.0.0.1]:4, remote=[127.0.0.1]:3, error=SO_ERROR: Connection refused, remote=[127.0.0.1]:3\n"
    )

    answer = answered(log)

    assert answer.unknown is not None
    assert answer.others == ()


def test_the_dimension_that_differs_is_padded() -> None:
    """Of an all-gather whose third dimension is another on two ranks."""
    side = "CollectiveFingerPrint(SequenceNumber=0, OpType=_ALLGATHER_BASE, TensorShape=[9, 1, {}, 16], TensorDtypes=BFloat16)"
    said = f"RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: {side.format(35)}, but Rank 2 is running collective: {side.format(36)}."

    assert "x.shape[2]" in pasted("collective-shape-mismatch", said)
    assert "x.shape[0]" not in pasted("collective-shape-mismatch", said)


def test_the_group_that_waits_is_named() -> None:
    """With the number that the rank has in it."""
    log = (
        "[rank7]:[E506 14:16:14.487575902 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600066 milliseconds before timing out.\n"
        "[rank7]:[E506 14:16:14.488017295 ProcessGroupNCCL.cpp:2168] [PG ID 4 PG GUID 12({}) Rank 3] failure detected by watchdog at work sequence id: 3 PG status: last enqueued work: 3, last completed work: 2\n"
    )

    assert "of the group mesh_tp, in which it has number 3" in pasted("collective-timeout", log.format("mesh_tp"))
    assert "of the group" not in pasted("collective-timeout", log.format("default_pg"))


def test_flattened_parameters_are_kept_in_the_words_of_who_wraps_them() -> None:
    """The Trainer wraps by Accelerate."""
    error = "ValueError: `FlatParameter` requires uniform `requires_grad`\n"
    frames = 'Traceback (most recent call last):\n  File "/v/site-packages/{}", line 9, in prepare\n'

    assert "fsdp_use_orig_params" in pasted("fsdp-cannot-flatten", frames.format("accelerate/accelerator.py") + error)
    assert "FSDP(model, use_orig_params=True)" in pasted("fsdp-cannot-flatten", frames.format("own/wrap.py") + error)
