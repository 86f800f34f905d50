"""What a thread does, by the functions of libraries in its stack; and the loop that its lines are in."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from types import FrameType

from ddpdoctor.watch.events import SampledLine
from ddpdoctor.watch.events.steps.lines import LineKind
from ddpdoctor.watch.user_frames import file_of, is_users, is_watchs

DEEPEST = 200  # frames
MAIN = 0.9  # of the time: a line that has so much is gone into, down to the loop that makes the steps
SHOWN = 12  # lines that are told
INSIDE = 8  # lines that are told of what one of them spends its time in
FIRST = (
    ("/torch/fx/traceback.py", "format_stack", LineKind.STACK_KEPT),
    ("/traceback.py", "format_stack", LineKind.STACK_KEPT),
    ("/torch/utils/checkpoint.py", "", LineKind.RECOMPUTED),
    ("/torch/autograd/", "backward", LineKind.BACKWARD),
    ("/torch/nn/parallel/distributed.py", "_post_forward", LineKind.GRAPH_SEARCHED),
    ("/torch/nn/parallel/distributed.py", "_sync_buffers", LineKind.BUFFERS_BROADCAST),
    ("/torch/nn/parallel/distributed.py", "forward", LineKind.FORWARD),
    ("/torch/optim/", "", LineKind.OPTIMIZER),
    ("/torch/utils/data/dataloader.py", "__iter__", LineKind.LOADER_BEGUN),
    ("/torch/utils/data/distributed.py", "__iter__", LineKind.LOADER_BEGUN),
    ("/torch/utils/data/sampler.py", "__iter__", LineKind.LOADER_BEGUN),
    ("/torch/utils/data/dataloader.py", "_shutdown_workers", LineKind.LOADER_BEGUN),
    ("/torch/utils/data/dataloader.py", "__next__", LineKind.DATA),
)
"""What a call is for that holds others: the first of these that is in the stack counts.

A forward comes before an optimizer: one that is given a closure calls it in its step.
"""
LATER = (
    ("/torch/serialization.py", "save", LineKind.CHECKPOINT_WRITTEN),
    ("/copy.py", "deepcopy", LineKind.COPIED),
    ("/torch/nn/modules/module.py", "load_state_dict", LineKind.STATE_LOADED),
    ("/torch/distributed/", "all_gather_object", LineKind.OBJECTS_EXCHANGED),
    ("/torch/distributed/", "gather_object", LineKind.OBJECTS_EXCHANGED),
    ("/torch/distributed/", "broadcast_object_list", LineKind.OBJECTS_EXCHANGED),
    ("/torch/cuda/memory.py", "empty_cache", LineKind.CACHE_EMPTIED),
    ("/torch/distributed/", "", LineKind.COLLECTIVE),
    ("/logging/", "", LineKind.LOGGING),
    ("/http/client.py", "", LineKind.SERVER_ASKED),
    ("/subprocess.py", "", LineKind.PROGRAM_WAITED_FOR),
    ("/torch/nn/modules/module.py", "_call_impl", LineKind.MODULE_CALLED),
)
"""What else a call can be; the outermost one counts."""
CALL_OTHERS = ("optimizer.py", "lr_scheduler.py", "swa_utils.py")
"""Files of torch.optim that call what is none of a closure's: a step, a hook, a user's function of a schedule."""
OPTIMIZES = [kind for *_, kind in FIRST].index(LineKind.OPTIMIZER)
Line = tuple[str, int, str]
"""File, line, function."""


@dataclass(slots=True)
class Sampled:
    """The time in one stack of the user's lines: nanoseconds by the clock, of the processor, and in which steps.

    ``waited`` are those in which the thread had no core.
    """

    clock: int = 0
    processor: int = 0
    steps: set[int] = field(default_factory=set)
    waited: int = 0

    def add(self, other: Sampled) -> None:
        """Take up another's."""
        self.clock += other.clock
        self.processor += other.processor
        self.steps |= other.steps
        self.waited += other.waited


def stack_of(frame: FrameType | None) -> tuple[str, tuple[Line, ...]]:
    """Return what a thread is doing, and the user's lines that it came through, outermost first."""
    lines: list[Line] = []
    first, later = len(FIRST), len(LATER)
    given = in_closure = False
    for _ in range(DEEPEST):
        if frame is None:
            break
        code = frame.f_code
        if is_users(code.co_filename):
            lines.append((file_of(code), frame.f_lineno or 0, code.co_name))
            given = True
        else:
            early, late = _kind(code.co_filename, code.co_name)
            given = given or _is_given(code.co_filename)
            in_closure = in_closure or (given and early == OPTIMIZES and not code.co_filename.endswith(CALL_OTHERS))
            if not (in_closure and early == OPTIMIZES):
                first = min(first, early)
            later = min(later, late)
        frame = frame.f_back
    kind = FIRST[first][2] if first < len(FIRST) else LATER[later][2] if later < len(LATER) else ""
    return kind, tuple(reversed(lines))


@functools.cache
def _is_given(file: str) -> bool:
    """Whether a file is one of a framework: torch's optimizers come to it through a closure alone."""
    path = file.replace("\\", "/")
    return ("/site-packages/" in path or "/dist-packages/" in path) and "/torch/" not in path and not is_watchs(path)


@functools.cache
def _kind(file: str, function: str) -> tuple[int, int]:
    """Return the places of a library's function in the two lists; their lengths where it is not there."""
    path = file.replace("\\", "/")
    at = [
        next((at for at, (part, name, _) in enumerate(kinds) if part in path and name in {"", function}), len(kinds))
        for kinds in (FIRST, LATER)
    ]
    return at[0], at[1]


def by_line(found: dict[tuple[str, tuple[Line, ...]], Sampled]) -> tuple[SampledLine, ...]:
    """Return the lines of the loop that makes the steps, longest first, each with where it spends most."""
    depth = depth_of_loop({key: each.clock for key, each in found.items()})
    lines: dict[tuple[str, Line], Sampled] = {}
    inner: dict[tuple[str, Line], dict[Line, Sampled]] = {}
    for (kind, stack), each in found.items():
        if len(stack) <= depth:
            continue
        key = kind, stack[depth]
        lines.setdefault(key, Sampled()).add(each)
        inner.setdefault(key, {}).setdefault(stack[-1], Sampled()).add(each)
    longest = sorted(lines, key=lambda key: lines[key].clock, reverse=True)[:SHOWN]
    told = []
    for key in longest:
        kind, line = key
        inside = sorted(inner[key].items(), key=lambda item: item[1].clock, reverse=True)[:INSIDE]
        deepest, most = inside[0]
        each = lines[key]
        took = each.clock, each.processor, len(each.steps)
        by = tuple((*at, one.clock, one.processor, one.waited) for at, one in inside)
        told.append(SampledLine(kind, *line, *took, *deepest, most.clock, each.waited, by))
    return tuple(told)


def depth_of_loop(weights: dict[tuple[str, tuple[Line, ...]], int]) -> int:
    """Return how deep the user's function lies that makes the steps: no line of it has nearly all of the time."""
    depth, there = 0, weights
    while True:
        by: dict[Line, int] = {}
        for (_, stack), weight in there.items():
            if len(stack) > depth:
                by[stack[depth]] = by.get(stack[depth], 0) + weight
        line = max(by, key=lambda each: by[each], default=None)
        if line is None or by[line] < MAIN * sum(weights.values()):
            return depth
        inside = {key: weight for key, weight in there.items() if key[1][depth : depth + 1] == (line,)}
        deeper = sum(weight for (_, stack), weight in inside.items() if len(stack) > depth + 1)
        if deeper < MAIN * sum(weights.values()):
            return depth
        depth, there = depth + 1, inside
