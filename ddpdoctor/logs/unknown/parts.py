"""Parts of torch and of the packages around it: what each was doing where it raised, and what shows more of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.logs.records import Frame, Record

STATE = "p.shape, p.dtype, p.device, p.requires_grad"
SHOWN = f"print([(n, {STATE}) for n, p in model.named_parameters()][:9])"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a package: the ``files`` that it is, as a pattern, and what it was ``doing`` there.

    ``summary`` and ``command`` say what to look at next; ``{launcher}`` is the user's own start of all ranks.
    """

    files: str
    doing: str
    summary: str
    command: str


PARTS = (
    Part(
        r"torch/distributed/(?:rendezvous\.py|elastic/(?:agent|rendezvous|utils)/)",
        "the processes were meeting at MASTER_ADDR and MASTER_PORT, before any training",
        "see whether this host knows that address, reaches it, and finds the port free or open",
        "ddpdoctor check -- {launcher}   # on each host",
    ),
    Part(
        r"torch/distributed/device_mesh\.py",
        "torch was laying the ranks out in a mesh of parallel sizes",
        "the sizes have to multiply to the number of ranks, and each dimension to be asked for by its own name",
        "print(torch.distributed.get_world_size(), mesh_shape, mesh_dim_names)   # above that line",
    ),
    Part(
        r"torch/distributed/(?:fsdp/_(?:state_dict|optim|unshard_param)_utils|checkpoint/state_dict)\.py",
        "the whole state was being put together from the shards of all ranks, or shared out to them",
        "the names of the model and of the state have to be the same, and all ranks to come: compare the names",
        "print([n for n, _ in model.named_parameters()][:9], list(state)[:9])   # ddpdoctor inspect FILE",
    ),
    Part(
        r"torch/distributed/(?:fsdp/(?:_init_utils|_flat_param|_wrap_utils|wrap)|fsdp/_fully_shard/_fsdp_(?:init|param))\.py",
        "FSDP was taking over the parameters of a module",
        "see what they are on this rank: of one dtype, on its own GPU, none of them shared with another module",
        f"{SHOWN}   # above that line",
    ),
    Part(
        r"torch/distributed/(?:fsdp|_composable|algorithms/_comm_hooks)/",
        "FSDP was gathering or sharing out the parameters of a module, around its forward or backward",
        "all ranks have to run the same modules in the same order: this tells which rank did not",
        "ddpdoctor run -- {launcher}",
    ),
    Part(
        r"torch/distributed/checkpoint/",
        "torch was saving or loading a sharded checkpoint",
        "see what the folder holds, and whether it is whole, on each host",
        "ddpdoctor inspect FOLDER",
    ),
    Part(
        r"torch/distributed/(?:tensor|_tensor)/",
        "an operator was run on a DTensor, which is sharded over ranks",
        "see which of what it is given is sharded, and how",
        "print([(type(x), getattr(x, 'placements', None), tuple(x.shape)) for x in (INPUTS)])   # above that line",
    ),
    Part(
        r"torch/distributed/pipelining/",
        "a stage of a pipeline was running a micro-batch",
        "see what the stage was given: the shapes of all micro-batches have to be those of the first",
        "ddpdoctor run -- {launcher}",
    ),
    Part(
        r"torch/distributed/(?:__init__\.py|distributed_c10d\.py|c10d_logger\.py|nn/|_functional_collectives)",
        "a collective was called, or a group made",
        "all ranks have to call it, in the same order, with tensors alike: this has torch compare them each time",
        "TORCH_DISTRIBUTED_DEBUG=DETAIL {launcher}",
    ),
    Part(
        r"torch/nn/parallel/distributed\.py",
        "DistributedDataParallel was wrapping the model, or at the beginning or end of its forward",
        "look at the model as DDP does, on two ranks of this host",
        "ddpdoctor check --model FILE:FUNCTION --batch FILE:FUNCTION",
    ),
    Part(
        r"torch/(?:nn/parallel/(?:data_parallel|parallel_apply|replicate|scatter_gather|comm)|cuda/(?:nccl|comm))\.py",
        "DataParallel was dividing a batch among the GPUs, or running a copy of the model on each",
        "on one GPU it does nothing: whether the error stays tells whose it is. A process for each GPU, with "
        "DistributedDataParallel, has none of its limits",
        "CUDA_VISIBLE_DEVICES=0 python SCRIPT ...",
    ),
    Part(
        r"torch/utils/checkpoint\.py",
        "a part of the forward was being run again for the backward (activation checkpointing)",
        "where it goes without the checkpointing, the second run is not like the first",
        "model.gradient_checkpointing_disable()   # or leave torch.utils.checkpoint out, for one step",
    ),
    Part(
        r"torch/autograd/(?:__init__|graph)\.py",
        "the backward was computing gradients: what is wrong was done in the forward",
        "let torch note the forward's lines: the traceback then names the one that the failed gradient belongs to",
        "torch.autograd.set_detect_anomaly(True)   # at the beginning of the script, for one run",
    ),
    Part(
        r"torch/optim/|deepspeed/ops/adam/",
        "the optimizer was taking its step",
        "see whether its state fits the parameters: it does not where it was loaded from another run",
        "print([(p.shape, [getattr(v, 'shape', v) for v in optimizer.state[p].values()]) "
        "for g in optimizer.param_groups for p in g['params']][:4])",
    ),
    Part(
        r"torch/(?:_dynamo|_inductor|_functorch|fx)/",
        "torch.compile was translating the model, or running what it had made of it",
        "whether the error stays without torch.compile tells whose it is",
        "TORCHDYNAMO_DISABLE=1 {launcher}",
    ),
    Part(
        r"torch/utils/data/",
        "a DataLoader was making a batch",
        "load in the rank itself, and stop at the line that fails",
        "DataLoader(..., num_workers=0)   # then: python -m pdb SCRIPT",
    ),
    Part(
        r"torch/multiprocessing/|.*lib/python[\d.]+/multiprocessing/",
        "a process was being started, or an object handed to one",
        "what is handed over has to be importable there, and to be pickled: try the object alone",
        "python -c 'import pickle; from MODULE import OBJECT; pickle.dumps(OBJECT)'",
    ),
    Part(
        r"torch/(?:serialization|_weights_only_unpickler)\.py|safetensors/",
        "a file of weights was being read or written",
        "see what the file holds, without loading it",
        "ddpdoctor inspect FILE",
    ),
    Part(
        r"deepspeed/runtime/zero/",
        "ZeRO was partitioning, gathering or reducing",
        "whether it stays at a lower stage tells whether the sharding of the parameters has to do with it",
        '"zero_optimization": {"stage": 2}   # in the configuration, where it was 3; or 0',
    ),
    Part(
        r".*megatron/core/dist_checkpointing/",
        "Megatron was saving or loading a sharded checkpoint",
        "the sizes of all parallel dimensions, and the format of the optimizer's state, have to fit both the model and "
        "what the folder was saved with",
        "cat CHECKPOINT/latest_checkpointed_iteration.txt CHECKPOINT/*/metadata.json; ddpdoctor inspect CHECKPOINT",
    ),
    Part(
        r"ray/dashboard/",
        "a job was being handed to the head of a Ray cluster",
        "see whether the cluster is up, and what the head itself says",
        "ray status; tail -n 20 /tmp/ray/session_latest/logs/dashboard*   # on the head",
    ),
    Part(
        r"ray/(?:_private|train|tune|util|exceptions|_raylet)",
        "Ray was handing work to its workers",
        "what ended a worker stands in its own output, on its own host",
        "ray status; grep -lE 'Error|Killed|SIG' /tmp/ray/session_latest/logs/*   # on the worker's host",
    ),
    Part(
        r"vllm/|sglang/",
        "the engine that generates, beside the training, was at work",
        "its own output says more; it runs alone as well",
        "VLLM_LOGGING_LEVEL=DEBUG {launcher}",
    ),
    Part(
        r"(?:mlflow|wandb|comet_ml|neptune|clearml|swanlab|aim|tensorboard|tensorboardX)/",
        "the run was being reported to a tracker",
        "where all ranks report to one run they are in each other's way: let rank 0 alone do it",
        'if int(os.environ.get("RANK", 0)) == 0:   # around the start of the run, and around all that is logged to it',
    ),
    Part(
        r"datasets/|pyarrow[/.]",
        "a data set was being read from the cache on disk",
        "with a cache of its own it shows whether the files of the shared one are broken, or half written",
        "HF_DATASETS_CACHE=$(mktemp -d) {launcher}",
    ),
)
"""The first one counts that has the innermost frame of all that any has."""
OF_TORCH_ITSELF = Part(
    "",
    "torch found a state that it takes to be impossible: a fault of this version, or of a use that it does not foresee",
    "try it with the newest torch; where it stays, leave out what is unusual, one after the other: compile, "
    "checkpointing, hooks, parameters that are replaced or moved after wrapping",
    "python -m torch.utils.collect_env   # for the report to PyTorch, beside the shortest script that shows it",
)
INTERNAL = re.compile(r"INTERNAL ASSERT FAILED")


def part_of(record: Record) -> Part | None:
    """Return the part that raised it below the user's own code, from the innermost frame outwards."""
    if INTERNAL.search(record.text):
        return OF_TORCH_ITSELF
    frames = [frame for frame in record.frames if not _begins(frame)]
    files = [frame.file.replace("\\", "/") for frame in frames]
    own = max((at for at, frame in enumerate(frames) if frame.is_users), default=-1)
    for file in reversed(files[max(own, 0) :]):  # Megatron's own files count as the user's: it runs from a checkout
        for part in PARTS:
            if re.search(rf"(?:^|-packages/|^python/)(?:{part.files})", file):
                return part
    return None


def _begins(frame: Frame) -> bool:
    """Whether it is where a process that was started began to run: it says nothing of what raised the error."""
    return frame.function in {"_bootstrap", "_wrap", "run"} and "multiprocessing" in frame.file
