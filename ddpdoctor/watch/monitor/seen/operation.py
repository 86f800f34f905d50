"""What a rank's stack says of it: the communication that it is inside of, and the library's function."""

from __future__ import annotations

import linecache
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.host.stack import in_backward
from ddpdoctor.watch.events.hang import INIT_RPC
from ddpdoctor.watch.user_frames import is_users, is_watchs

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame

# Frames of torch that wait for others, by the end of their file's path.
OF_RPC = "torch/distributed/rpc/__init__.py"
WAITS = (
    "torch/distributed/distributed_c10d.py", "torch/distributed/rendezvous.py", "torch/nn/parallel/distributed.py",
    OF_RPC,
)  # fmt: skip
# Functions of functional collectives, which DTensors communicate by, and those of them that only wait.
OF_DTENSOR = "torch/distributed/tensor/_redistribute.py"
FUNCTIONAL = ("torch/distributed/_functional_collectives.py", OF_DTENSOR)
ONLY_WAITS = {"wait_tensor", "trigger_wait", "wait", "__torch_dispatch__"}
REDISTRIBUTE = "redistribute"
"""What DTensors do when one rank needs the parts of the others: ``full_tensor()``, and norms, too."""
# What may stand further in: a frame of any other file is one of a computation.
WITHIN = (
    "/torch/distributed/", "/torch/nn/parallel/", "/torch/_ops.py", "/torch/_library/", "/torch/_dynamo/eval_frame.py",
    "/torch/utils/_contextlib.py", "/contextlib.py",
)  # fmt: skip
WAIT = "Work.wait"
"""Waiting for what async_op=True, isend or irecv has begun: the script calls it, and no function of torch is around."""
OF_GROUP = "a collective of its process group"
"""Within a method of a process group, which Lightning calls by itself, with no function of torch around."""
HANDLES = "watch/rank/hooks/communications.py"  # whose frame is innermost then
INNERMOST = {"wait": WAIT, "communicate": OF_GROUP}
# Functions of frameworks in which a rank waits for the others by other means than torch's, and how users know them.
RAY = "/ray/train/v2/_internal/execution/"
OTHER_WAITS = {
    (f"{RAY}context.py", "_sync_checkpoint_dir_name_across_ranks"): "ray.train.report",
    (f"{RAY}collective_impl.py", "barrier"): "ray.train.collective.barrier",
    (f"{RAY}collective_impl.py", "broadcast_from_rank_zero"): "ray.train.collective.broadcast_from_rank_zero",
}
HOROVOD = "/horovod/"
HOROVOD_WAITS = ("mpi_ops.py", "basics.py")
"""Horovod's files whose functions wait; what the user called of it is further out."""
DEEPSPEED = "/deepspeed/"
NVTX = "/deepspeed/utils/nvtx.py"
"""Around each of DeepSpeed's functions, and of the handles that it waits for: the only Python there is of these."""
GATHERS = "all_gather"
OF_ZERO = "/deepspeed/runtime/zero/partition_parameters.py"
CONSTRUCTED = {
    "__init__": "DistributedDataParallel()",
    "forward": "forward of DistributedDataParallel",
    "init_rpc": INIT_RPC,
}


def operation_of(frames: tuple[Frame, ...]) -> str:
    """Return the name of the communication that a stack is inside of; empty when it is in none, or computes in one."""
    name = INNERMOST.get(frames[0].function, "") if frames and HANDLES in frames[0].file else ""
    for frame in frames:
        if in_backward(frame.file, frame.function):
            return "backward"
        if is_users(frame.file) or not (is_watchs(frame.file) or any(part in frame.file for part in WITHIN)):
            break
        if frame.file.endswith(WAITS):
            name = frame.function
        elif frame.file.endswith(FUNCTIONAL):
            name = REDISTRIBUTE if frame.function in ONLY_WAITS or OF_DTENSOR in frame.file else frame.function
    return CONSTRUCTED.get(name, name) or _of_a_framework(frames)


def _of_a_framework(frames: tuple[Frame, ...]) -> str:
    for frame in frames:
        if is_users(frame.file):
            break
        for (file, function), name in OTHER_WAITS.items():
            if frame.function == function and frame.file.endswith(file):
                return name
    return _of_horovod(frames) or _of_deepspeed(frames)


def _of_deepspeed(frames: tuple[Frame, ...]) -> str:
    """Return what DeepSpeed waits for where its own line waits for a handle: ZeRO 3 gathers what a layer needs so."""
    own = [*dropwhile(lambda each: each.file.endswith(NVTX), frames)]
    if not own or DEEPSPEED not in own[0].file or ".wait" not in linecache.getline(own[0].file, own[0].line):
        return ""
    return GATHERS if own[0].file.endswith(OF_ZERO) and own[0].function == "wait" else WAIT


def _of_horovod(frames: tuple[Frame, ...]) -> str:
    """Return the function of Horovod that the user's code called, where the innermost one waits for other ranks."""
    inner = list(takewhile(lambda each: not is_users(each.file), frames))
    own = [each for each in inner if not is_watchs(each.file)]
    if not own or HOROVOD not in own[0].file or not own[0].file.endswith(HOROVOD_WAITS):
        return ""
    outer = [each for each in own if HOROVOD in each.file][-1]
    return f"hvd.{'DistributedOptimizer.' if outer.file.endswith('optimizer.py') else ''}{outer.function}"


def inner_function(frames: tuple[Frame, ...]) -> str:
    """Return the innermost function of a library, with its module's name; empty where the user's code is innermost.

    The watch's own frames are none of the training's.
    """
    frames = tuple(dropwhile(lambda each: is_watchs(each.file), frames))
    if not frames or is_users(frames[0].file):
        return ""
    file = frames[0].file
    if file.startswith("<frozen "):  # a part of Python that is no file: <frozen importlib._bootstrap>
        return f"{file[len('<frozen ') : -1]}.{frames[0].function}"
    path = Path(file)
    module = path.parent.name if path.stem == "__init__" else path.stem
    return f"{module}.{frames[0].function}"
