# ruff: noqa: E501 - messages stand in one line, as they are printed
"""What ``explain`` says of a fault that others resemble: the words that tell them apart, and the fix that fits each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers import named

from ddpdoctor.selftest.corpus import corpus

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.findings import Finding


def told(slug: str, log: str) -> Finding:
    """Return what a check says of a log."""
    return named(log)[slug].finding


def pasted(finding: Finding) -> str:
    """Return everything that a finding's fix says, to be read or pasted."""
    return f"{finding.fix.summary}\n{finding.fix.command}\n{finding.fix.diff}"


def test_a_list_of_objects_is_made_for_the_call_that_lacks_it() -> None:
    """`gather_object` says the same as `gather`; a function of the script's own may be called gather as well."""
    log = (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/home/u/eval.py", line 23, in gather\n'
        "[rank0]:     dist.gather_object(preds, None, dst=0)\n"
        '[rank0]:   File "/usr/lib/python3/site-packages/torch/distributed/{}.py", line 3397, in {}\n'
        "[rank0]:     _validate_output_list_for_rank(my_group_rank, group_dst, object_gather_list)\n"
        "[rank0]: ValueError: Argument ``gather_list`` must be specified on destination rank.\n"
    )

    objects = told("gather-list-on-wrong-rank", log.format("distributed_c10d", "gather_object"))
    tensors = told("gather-list-on-wrong-rank", log.format("distributed_c10d", "gather"))

    assert "dist.gather_object(part, parts, dst=0)" in pasted(objects)
    assert "dist.gather(part, parts, dst=0)" in pasted(tensors)


class TestTensors:
    """Tensors that are refused, by what they differ in."""

    GLOO = "RuntimeError: ProcessGroupGloo::{}: invalid tensor type at index 0 (expected TensorOptions(dtype={}, device={}, layout=Strided (default)), got TensorOptions(dtype={}, device={}, layout=Strided (default)))"

    @pytest.mark.parametrize("collective", ["allreduce", "allgather", "broadcast"])
    def test_a_device_that_gloo_does_not_take_is_told_as_such(self, collective: str) -> None:
        """Equal dtypes: it is the device; no backend communicates on mps, others have one of their own."""
        mac = told("no-backend-for-device", self.GLOO.format(collective, "float", "cpu", "float", "mps:0"))
        intel = told("no-backend-for-device", self.GLOO.format(collective, "float", "cpu", "float (default)", "xpu:1"))

        assert "x.cpu()" in pasted(mac)
        assert "xpu:xccl" in pasted(intel)

    def test_a_dtype_and_a_device_are_not_mixed_up(self) -> None:
        """Buffers on another device that gloo takes, and buffers of another dtype."""
        device = told("collective-tensors-refused", self.GLOO.format("allgather", "float", "cuda:0", "float", "cpu"))
        dtype = told("collective-tensors-refused", self.GLOO.format("allgather", "float", "cpu", "long long", "cpu"))
        old = told(
            "collective-tensors-refused",
            "RuntimeError: ProcessGroupGloo::allgather: invalid tensor type at index 0 (expected CPULongType, got CUDALongType)",
        )

        assert "on different devices, of cuda and of cpu" in device.message
        assert "of different dtypes" in dtype.message
        assert "on different devices, of cpu and of cuda" in old.message

    @pytest.mark.parametrize(
        ("code", "error"),
        [
            ("dist.all_reduce(p.grad.data)", "AttributeError: 'NoneType' object has no attribute 'data'"),
            ("p.grad /= world_size", "TypeError: unsupported operand type(s) for /=: 'NoneType' and 'int'"),
            (
                "flat = torch.cat([p.grad.view(-1) for p in params])",
                "AttributeError: 'NoneType' object has no attribute 'view'",
            ),
        ],
    )
    def test_a_gradient_that_is_none_is_told_where_it_is_exchanged(self, code: str, error: str) -> None:
        """By the line, or by the name of the function; elsewhere nothing is exchanged, and nothing said of it."""
        log = 'Traceback (most recent call last):\n  File "/w/train.py", line 9, in {}\n    {}\n{}\n'

        assert "p.grad is None" in told("no-gradient-to-exchange", log.format("average_gradients", code, error)).message
        assert "no-gradient-to-exchange" not in named(log.format("show", "print(p.grad.data.norm())", error))

    def test_the_share_of_a_head_is_computed(self) -> None:
        """Half a head, three halves, and a share of the heads that the code counts."""
        view = "[rank0]: RuntimeError: shape '[1, 10, {}, 4]' is invalid for input of size {}\n"
        split = "tensor_parallel_size=4\n"

        assert (
            "has 1/2 of a head: it has more ranks than"
            in told("parallel-sizes-mismatch", split + view.format(-1, 20)).message
        )
        assert (
            "has 3/2 heads: its ranks do not divide"
            in told("parallel-sizes-mismatch", split + view.format(-1, 60)).message
        )
        assert "has 2 of 8 heads" in told("parallel-sizes-mismatch", split + view.format(8, 80)).message
        assert "parallel-sizes-mismatch" not in named(view.format(8, 80))
        assert "parallel-sizes-mismatch" not in named(split + view.format(8, 90))

    def test_one_rank_that_fails_does_not_prove_that_its_samples_differ(self) -> None:
        """The others are ended before they can say the same."""
        finding = told(
            "step-fails-without-ddp", "[rank7]: RuntimeError: shape '[16, 8, 64]' is invalid for input of size 4096"
        )

        assert "rank 7; where the others go on" in finding.message


class TestFrameworks:
    """What a framework asks for, and which of its settings is meant."""

    def test_the_sizes_that_the_trainer_cannot_compute_are_given_as_numbers(self) -> None:
        """Each entry that the message lists, and no other."""
        log = "ValueError: The model's config file has neither `hidden_size` nor `hidden_sizes` entry, therefore it's not possible to automatically fill out the following `auto` entries in the DeepSpeed config file: ['zero_optimization.reduce_bucket_size']."
        fix = pasted(told("deepspeed-auto-not-filled", log))

        assert '+"reduce_bucket_size": 16777216' in fix
        assert "stage3" not in fix

    @pytest.mark.parametrize(
        ("pairs", "ranks"),
        [
            ("- ds train_batch_size=32 vs hf train_batch_size (calculated)=4", True),
            ("- ds gradient_clipping=2.0 vs hf max_grad_norm=1.0", False),
        ],
    )
    def test_settings_that_are_not_the_trainers_are_told(self, pairs: str, ranks: bool) -> None:  # noqa: FBT001
        """The number of ranks is offered for the size of the whole batch alone."""
        log = f"ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n{pairs}\nThe easiest method is to set these DeepSpeed config values to 'auto'."
        finding = told("deepspeed-batch-size-mismatch", log)

        assert ("8 times as many ranks" in pasted(finding)) == ranks
        assert '"auto"' in pasted(finding)

    def test_accelerates_own_words_are_read_as_well(self) -> None:
        """It compares with its arguments, and asks a model without a config."""
        pair = "ValueError: Please correct the following DeepSpeed config values that mismatch kwargs  values:\n- ds fp16.enabled=True vs arg fp16.enabled=False\nThe easiest method is to set these DeepSpeed config values to 'auto'."
        bare = "ValueError: Can't find `model.config` entry, therefore it's not possible to automatically fill out the following `auto` entries in the DeepSpeed config file: ['zero_optimization.reduce_bucket_size']."

        assert "Accelerate's arguments: fp16.enabled is True" in told("deepspeed-batch-size-mismatch", pair).message
        assert '+"enabled": "auto"' in pasted(told("deepspeed-batch-size-mismatch", pair))
        assert "the model has no config" in told("deepspeed-auto-not-filled", bare).message

    def test_zero_init_is_told_from_a_script_without_a_trainer(self) -> None:
        """Where transformers builds the model under zero.Init, the Trainer has not filled in auto yet."""
        frames = (
            'Traceback (most recent call last):\n  File "/w/t.py", line 1, in <module>\n{}  File "/x/site-packages/deepspeed/runtime/config.py", line 990, in _batch_assertion\n'
            "    train_batch > 0\nTypeError: '>' not supported between instances of 'str' and 'int'\n"
        )
        init = '  File "/x/site-packages/transformers/modeling_utils.py", line 3, in from_pretrained\n  File "/x/site-packages/deepspeed/runtime/zero/partition_parameters.py", line 9, in __init__\n'

        assert "zero.Init reads it before" in told("deepspeed-auto-not-filled", frames.format(init)).message
        assert "no Trainer and no Accelerate" in told("deepspeed-auto-not-filled", frames.format("")).message

    def test_helpers_that_are_not_built_are_the_words_of_the_rank_that_ended(self) -> None:
        """Nothing says that no exception is there; without such words, it is said."""
        ended = "E0612 09:41:23.134000 40100 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 40112) of binary: /usr/bin/python3"

        assert [*named(f"Failed to compile the C++ dataset helper functions\n{ended}")] == ["extension-not-built"]
        assert "worker-error-hidden-by-launcher" in named(f"Compiling the C++ dataset helper functions...\n{ended}")


def cut(where: str, name: str) -> str:
    """Return the log of a case of the corpus, which tells where it was reported."""
    return next(
        case.log for case in corpus() if any(name in line for line in case.about) and case.name.startswith(where)
    )


class TestLaunch:
    """Who started what, and what its own fix is."""

    def test_a_kernel_that_used_cuda_is_told_from_a_worker_of_the_loader(self) -> None:
        """notebook_launcher forks the kernel; without it, and without a trace of a loader, both are left open."""
        message = "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method\n"
        launched = told("cuda-before-fork", f"{message}notebook_launcher failed: \n")

        assert "restart the kernel" in pasted(launched)
        assert "torchrun" in pasted(
            told(
                "cuda-before-fork",
                f'  File "/usr/lib/python3.11/multiprocessing/process.py", line 3, in run\n{message}',
            )
        )
        assert named(message)["cuda-in-dataloader-worker"].finding.ambiguity is not None

    def test_lightning_needs_no_pickle_where_it_starts_the_script(self) -> None:
        """Of mp.spawn by hand the function moves to the top level."""
        frames = '  File "/x/site-packages/{}", line 80, in launch\n    mp.spawn(\n'
        log = "Traceback (most recent call last):\n{}AttributeError: Can't pickle local object 'main.<locals>.helper'\n"
        lightning = frames.format("pytorch_lightning/strategies/launchers/multiprocessing.py")

        assert "strategy='ddp'" in pasted(told("spawn-unpicklable-object", log.format(lightning)))
        assert "strategy='ddp'" not in pasted(told("spawn-unpicklable-object", log.format(frames.format("x/spawn.py"))))

    @pytest.mark.parametrize(
        ("words", "backend"), [("import torch_npu", "hccl"), ("UserWarning: torch_mlu", "cncl"), ("epoch 1", "gloo")]
    )
    def test_the_backend_is_that_of_the_accelerator(self, words: str, backend: str) -> None:
        """NCCL is for NVIDIA's GPUs; where nothing else is seen, a build of torch with it is asked for."""
        finding = told("nccl-not-built", f"{words}\nRuntimeError: Distributed package doesn't have NCCL built in")

        assert f'init_process_group("{backend}")' in pasted(finding)

    def test_stages_and_sequences_have_fixes_of_their_own(self) -> None:
        """Layers by stages, the sequence by tensor parallel ranks; neither is a matter of the launch."""
        layers = told(
            "parallel-sizes-mismatch",
            "AssertionError: Number of layers should be divisible by the pipeline-model-parallel size",
        )
        sequence = told(
            "parallel-sizes-mismatch",
            "  in scatter_to_sequence_parallel_region\nAssertionError: First dimension of the tensor should be divisible by tensor parallel size",
        )
        launch = told("parallel-sizes-mismatch", "AssertionError: world size (6) is not divisible by 4")

        assert "--decoder-first-pipeline-num-layers" in pasted(layers)
        assert "pad the sequences" in pasted(sequence)
        assert "torchrun" in pasted(launch)

    def test_bindings_that_were_not_loaded_are_the_reason(self) -> None:
        """Without such a warning, the backend was not named."""
        error = "RuntimeError: No backend type associated with device type xpu"
        warned = "UserWarning: Warning: Cannot load xpu CCL. CCL doesn't work for XPU device due to libintel-ext-pt-gpu.so: cannot open shared object file\n"

        assert (
            "could not be loaded for it: libintel-ext-pt-gpu.so"
            in told("no-backend-for-device", warned + error).message
        )
        assert "cpu:gloo,xpu:xccl" in pasted(told("no-backend-for-device", error))


class TestNccl:
    """What NCCL, and what lies below it, says of itself."""

    def test_a_line_that_is_there_is_not_asked_for(self) -> None:
        """Neither as what was expected, nor by another run."""
        warned = "node-a:41211:41402 [1] socket.c:12 NCCL WARN something odd\n"
        error = "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, unhandled system error, NCCL version 2.14.3"
        with_line, without = (
            told("nccl-system-error-unspecified", warned + error),
            told("nccl-system-error-unspecified", error),
        )

        assert with_line.evidence[0].expected == "no error"
        assert "NCCL_DEBUG" not in pasted(with_line)
        assert "NCCL_DEBUG=INFO" in pasted(without)

    def test_an_older_nccl_than_torchs_is_put_right_without_importing_torch(self) -> None:
        """The package that torch asks for is read off its metadata: importing it fails."""
        fix = pasted(
            told("multiple-nccl", "ImportError: /v/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommResume")
        )

        assert "importlib.metadata" in fix
        assert "pip uninstall -y" in fix

    def test_gpus_that_nccl_does_not_know_are_one_cause(self) -> None:
        """Where the words are of the topology; else not."""
        error = "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, internal error, NCCL version 2.14.3\nncclInternalError: Internal check failed.\nLast error:\n{}"
        topology = told(
            "nccl-internal-error",
            "Traceback (most recent call last):\n"
            + error.format("Failed to find reverse path from remNode 0/5f000 nlinks 4 to node 0/cb000"),
        )
        other = told(
            "nccl-internal-error",
            "Traceback (most recent call last):\n" + error.format("Proxy Call to rank 1 failed (Connect)"),
        )

        assert topology.ambiguity is not None
        assert "NCCL 2.14.3 is older than the GPUs" in topology.ambiguity.causes[0]
        assert other.ambiguity is not None
        assert "older than the GPUs" not in other.ambiguity.causes[0]

    def test_skypilots_prefix_is_no_part_of_the_line(self) -> None:
        """It names the node; the rank in it is the node's, not the process's."""
        log = "(worker1, rank=1, pid=31870) [rank9]: RuntimeError: No backend type associated with device type xpu"

        assert told("no-backend-for-device", log).place.rank == 9
        assert told("no-backend-for-device", log).evidence[0].seen.startswith("RuntimeError")


class TestSides:
    """Ranks whose lines belong together."""

    OLD = "RuntimeError: Detected mismatch between collectives on ranks. Rank {} is running inconsistent collective: CollectiveFingerPrint(OpType={}, TensorShape=[{}, 2], TensorDtypes=Float)\n"

    def test_each_rank_prints_its_own_side(self) -> None:
        """Both are read, also where each stands in a line of its own; of one alone both causes are left."""
        shapes = named(self.OLD.format(0, "ALLGATHER", 41) + self.OLD.format(1, "ALLGATHER", 40))
        order = named(self.OLD.format(0, "ALLGATHER", 41) + self.OLD.format(1, "BROADCAST", 41))
        one = named(self.OLD.format(0, "ALLGATHER", 41))

        assert [*shapes] == ["collective-shape-mismatch"]
        assert "rank 1: ALLGATHER of shape [40, 2]" in shapes["collective-shape-mismatch"].finding.message
        assert order["collective-order-mismatch"].finding.ambiguity is None
        assert one["collective-order-mismatch"].finding.ambiguity is not None

    def test_a_save_of_one_rank_is_one_cause_of_a_lost_peer(self) -> None:
        """Where the frames show that shards are gathered for it."""
        finding = told("peer-connection-lost", cut("network", "kyuz0"))

        assert finding.ambiguity is not None
        assert "one rank alone calls save_model()" in finding.ambiguity.causes[0]
        assert "+trainer.save_model(args.output_dir)" in pasted(finding)

    def test_experts_under_zero3_are_one_cause_of_ranks_that_diverge(self) -> None:
        """With both signs in the log; without experts, the usual causes."""
        log = cut("collectives", "DeepSpeed#7461")
        plain = told("ranks-diverge", log.replace("Qwen3MoeForCausalLM", "Qwen3ForCausalLM").replace("128 experts", ""))

        assert "set_z3_leaf_modules" in pasted(told("ranks-diverge", log))
        assert "set_z3_leaf_modules" not in pasted(plain)


class TestCheckpoints:
    """Keys that a sharded checkpoint has not."""

    def test_what_may_be_missing_is_left_as_it_is_by_one_fix(self) -> None:
        """Of weights and of an optimizer's states alike; of Accelerate's numbered ones another version helps."""
        error = "RuntimeError: Missing key in checkpoint state_dict: {}."
        by_accelerate = told("checkpoint-architecture-mismatch", cut("checkpoint", "accelerate#3971, the whole log"))

        for key in ("model.2.weight", "optim.state.fc.weight.exp_avg"):
            assert "allow_partial_load=True" in pasted(told("checkpoint-architecture-mismatch", error.format(key)))
        assert "pip install --upgrade accelerate" in pasted(by_accelerate)
        assert "allow_partial_load" not in pasted(by_accelerate)

    def test_a_compiled_model_is_one_cause(self) -> None:
        """Where the log says that it is compiled."""
        compiled = told("checkpoint-architecture-mismatch", cut("checkpoint", "torchtitan#961, the whole log"))
        plain = told(
            "checkpoint-architecture-mismatch", "RuntimeError: Missing key in checkpoint state_dict: fc.weight."
        )

        assert compiled.ambiguity is not None
        assert "_orig_mod." in compiled.ambiguity.causes[0]
        assert "allow_partial_load" not in pasted(compiled)  # under other names it would load nothing
        assert plain.ambiguity is not None
        assert "_orig_mod." not in plain.ambiguity.causes[0]

    def test_the_users_line_stands_in_the_traceback_of_all_ranks(self) -> None:
        """Not in torch's own planner, whose path torch prints without its folder."""
        assert (
            told("checkpoint-architecture-mismatch", cut("checkpoint", "pytorch#148252, the whole log")).place.file
            == "scratch.py"
        )


class TestOwnWords:
    """Values, places and programs."""

    def test_each_assertion_of_a_kernel_has_its_fix(self) -> None:
        """A loss that takes probabilities, and labels that are indices."""
        line = "Loss.cu:94: operator(): block: [117,0,0], thread: [26,0,0] Assertion `{}` failed."

        assert "BCEWithLogitsLoss" in pasted(
            told("device-side-assert", line.format("input_val >= zero && input_val <= one"))
        )
        assert "num_classes" in pasted(told("device-side-assert", line.format("t >= 0 && t < n_classes")))

    def test_lightnings_sync_dist_is_quoted(self) -> None:
        """A tensor of one's own is moved to the GPU."""
        finding = told("nccl-cpu-tensor", cut("collectives", "terratorch"))
        own = told("nccl-cpu-tensor", "RuntimeError: No backend type associated with device type cpu")

        assert any("sync_dist=True" in each.seen for each in finding.evidence)
        assert "sync_dist" not in pasted(own)

    def test_a_launcher_is_no_place_of_the_users(self) -> None:
        """Its console script and its frozen executable are not the user's to mend."""
        log = 'Traceback (most recent call last):\n  File "{}", line 7, in <module>\n  File "/x/site-packages/torch/distributed/run.py", line 5, in run\nRuntimeError: use_libuv was requested but PyTorch was build without libuv support\n'

        for file in ("/opt/conda/bin/torchrun", r"C:\venv\Scripts\accelerate.exe\__main__.py"):
            assert told("libuv-missing", log.format(file)).place.file is None
        assert told("libuv-missing", log.format("/w/train.py")).place.file == "/w/train.py"

    def test_a_recomputation_is_one_cause_of_a_plain_tensor(self) -> None:
        """Where checkpointing calls the forward, from a backward."""
        log = cut("model", "pytorch#153354, the whole log")
        plain = told("dtensor-mixed-with-tensor", log.replace("recompute_fn", "run"))

        assert "reshard_after_forward=False" in pasted(told("dtensor-mixed-with-tensor", log))
        assert "reshard_after_forward=False" not in pasted(plain)


class TestScalers:
    """A scaler that unscales twice: what the script leaves out is read off it."""

    WORDS = """Traceback (most recent call last):
  File "{}", line 3, in amp
    scaler.unscale_(optimizer)
  File "/usr/lib/python3.12/site-packages/torch/amp/grad_scaler.py", line 342, in unscale_
    raise RuntimeError(
RuntimeError: unscale_() has already been called on this optimizer since the last update().
"""
    STEP = "def amp(scaler, optimizer, loss):\n    scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n"

    @pytest.mark.parametrize(
        ("rest", "added"),
        [
            ("    optimizer.step()\n", "-optimizer.step()\n+scaler.step(optimizer)\n+scaler.update()"),
            ("    scaler.step(optimizer)\n", " scaler.step(optimizer)\n+scaler.update()"),
        ],
    )
    def test_an_update_that_is_nowhere_is_the_cause(self, tmp_path: Path, rest: str, added: str) -> None:
        """Neither accumulation nor a second call is guessed at."""
        script = tmp_path / "train.py"
        script.write_text(self.STEP + rest)

        finding = told("scaler-called-out-of-turn", self.WORDS.format(script))

        assert "nothing calls" in finding.message
        assert finding.ambiguity is None
        assert added in pasted(finding)

    @pytest.mark.parametrize("rest", ["    if last:\n        scaler.update()\n", "import lightning\n"])
    def test_an_update_that_may_be_made_leaves_several_causes(self, tmp_path: Path, rest: str) -> None:
        """The script, or its framework, updates the scaler somewhere."""
        script = tmp_path / "train.py"
        script.write_text(self.STEP + rest)

        finding = told("scaler-called-out-of-turn", self.WORDS.format(script))

        assert finding.ambiguity is not None
