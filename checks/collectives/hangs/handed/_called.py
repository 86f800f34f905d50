"""What the user's line calls that a rank waits in: a collective, or a call that gathers the shards of all ranks.

Nobody reads from `model.state_dict()`, or from `model(inputs)`, that it communicates: with FSDP and ZeRO it does.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import NamedTuple

from ddpdoctor.check import Fix, Site, calls_at, last_name, loop_at, statement_at, tree_of

from .._messages import BY_HANDLE
from ..source._one_rank import UNPAIRED, called, mend
from ..source._rewritten import rewritten, shown

LONGEST = 60  # characters of a call that are shown
WIDEST = 90  # of a line
STATE = frozenset(
    "state_dict full_tensor get_state_dict get_model_state_dict get_optimizer_state_dict optim_state_dict "
    "full_optim_state_dict sharded_optim_state_dict".split()
)
"""What gathers the shards of all ranks, and returns what one of them writes."""
OTHERS = {
    "consolidate_state_dict": "gathers the optimizer's state from all ranks",
    "summon_full_params": "gathers the shards of all ranks",
    "unshard": "gathers the shards of all ranks",
    "load_state_dict": "gives each rank its part",
    "clip_grad_norm_": "adds up the norms of all ranks' shards",
    **dict.fromkeys(("set_model_state_dict", "set_optimizer_state_dict", "set_state_dict"), "gives each rank its part"),
}
CHECKPOINT = frozenset("dcp dist_cp DCP distcp dist.checkpoint torch.distributed.checkpoint".split())
TOGETHER = frozenset("save load async_save save_state_dict load_state_dict".split())
"""What torch.distributed.checkpoint does on all ranks: a state dict among its arguments need not communicate."""
INNER = frozenset("all_gather all_gather_into_tensor reduce_scatter_tensor redistribute all_gather_single".split())
"""What nobody calls to compute or save something: the forward of a sharded model does."""
SHOWS = frozenset("format item tolist append info debug log write get_rank".split()) | {*dir(builtins)}
"""What is done with the result of a call, and communicates nothing."""
TELLING = ("gather", "reduce", "barrier", "broadcast", "scatter", "send", "recv", "backward", "Distributed", "group")
"""Parts of the names of calls that say by themselves that they communicate."""


OF_HOROVOD = "hvd."
RETURNS = frozenset("allgather allgather_object allreduce alltoall broadcast broadcast_object reducescatter".split())
"""Functions of Horovod whose result is printed or saved; what else waits changes weights, or only waits."""


class Called(NamedTuple):
    """The call, what it does where its name does not say so, and how all ranks make it."""

    call: str
    does: str
    fix: Fix


def told_of(site: Site | None, operation: str, guard: str) -> Called:
    """Return what a line calls that some ranks skip; the operation is the communication that a rank waits in."""
    return _of_horovod(operation, guard) if operation.startswith(OF_HOROVOD) else _of_a_line(site, operation, guard)


def _of_horovod(operation: str, guard: str) -> Called:
    returns = operation.removeprefix(OF_HOROVOD) in RETURNS
    return Called(operation, "", mend(operation, guard) if returns else _moved(f"{operation}(...)", guard))


def _of_a_line(site: Site | None, operation: str, guard: str) -> Called:
    all_calls = calls_at(site.file, site.line) if site else []
    if all_calls and not any(last_name(each.func) == "wait" for each in all_calls):
        operation = operation.removeprefix(BY_HANDLE)  # a wait within what the line calls
    for call in all_calls:
        module, _, name = ast.unparse(call.func).rpartition(".")
        if module in CHECKPOINT and name in TOGETHER:
            whole = f"{module}.{name}(...)"
            return Called(whole, ", in which all ranks take part", _moved(whole, guard))
    for call in all_calls:
        name = last_name(call.func)
        code = ast.unparse(call)
        told = code if len(code) <= LONGEST else f"{ast.unparse(call.func)}(...)"
        if name in STATE:
            return Called(told, ", which gathers the shards of all ranks", _kept(site, told, guard))
        if name in OTHERS:
            return Called(told, f", which {OTHERS[name]}", _moved(code, guard))
    if site and (loader := loop_at(site.file, site.line)):
        return Called(f"the loop over {loader}", ", whose loader communicates as a pass begins", _looped(loader, guard))
    what = called(site, operation)
    calls = [each for each in all_calls if not _is_builtin(each)] if what == operation else []
    return _of_a_library(calls, operation, guard) or Called(what, "", mend(what, guard))


def _of_a_library(calls: list[ast.Call], operation: str, guard: str) -> Called | None:
    """Return which call of a line communicates where its name does not say so; None where that is not known."""
    named = {last_name(each.func) for each in calls}
    if calls and operation not in named and (operation in INNER or _is_within(operation, calls)):
        code = ast.unparse(calls[0])
        told = code if len(code) <= LONGEST else f"{ast.unparse(calls[0].func)}(...)"
        return Called(told, f", in which {operation} is called", _moved(code, guard))
    inner = [each for each in calls if last_name(each.func) not in SHOWS]
    function = ast.unparse(inner[0].func) if len(inner) == 1 and operation.isidentifier() else ""
    if not function or any(each in function for each in TELLING):
        return None
    return Called(f"{function}(...)", f", in which {operation} is called", _returned(function, guard))


def _is_within(operation: str, calls: list[ast.Call]) -> bool:
    """Whether the one call of a line is that of a method which communicates in its turn, as a metric's ``compute``."""
    is_method = isinstance(calls[0].func, ast.Attribute) and calls[0].func.attr not in SHOWS
    return is_method and len(calls) == 1 and operation.isidentifier() and operation not in UNPAIRED


def _is_builtin(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and hasattr(builtins, call.func.id)


def by_callers(stack: Sequence[Site], site: Site, guard: str) -> Fix | None:
    """Return how all ranks make the call of ``site`` below which one waits; None where it is not clear which that is.

    ``stack`` are the user's lines that the rank is in, the innermost first.
    """
    at = next((at for at, each in enumerate(stack) if each == site), 0)
    within = calls_at(stack[0].file, stack[0].line) if stack else []
    gathers = next((ast.unparse(each) for each in within if last_name(each.func) in STATE), "")
    name = stack[at - 1].function if at else ""
    calls = [each for each in calls_at(site.file, site.line) if last_name(each.func) == name]
    if len(calls) != 1:
        return None
    code = ast.unparse(calls[0])
    code = code if len(code) <= LONGEST else f"{ast.unparse(calls[0].func)}(...)"
    statement = statement_at(tree_of(site.file), site.line)
    if isinstance(statement, ast.Expr) and statement.value is calls[0]:
        does = f"in which {gathers} gathers" if gathers and len(gathers) <= LONGEST else "which communicates"
        what = f"let all ranks call {name}, {does}; within it, what one rank is to write stays under a test"
        return Fix(what, diff=rewritten(guard, code))
    what = f"let all ranks call {name}, which communicates, and print or save on rank 0 only"
    return Fix(what, diff=rewritten(guard, code, result="result"))


def _kept(site: Site | None, code: str, guard: str) -> Fix:
    """Return how all ranks gather: the whole line where it keeps what it gathers, or gathers in a comprehension."""
    line = statement_at(tree_of(site.file), site.line) if site else None
    text = ast.unparse(line) if isinstance(line, (ast.Assign, ast.Expr)) else ""
    if isinstance(line, ast.Assign) and len(text) <= WIDEST and "\n" not in text:
        diff = f"+{text}\n {_test(guard)}:\n-    {text}"
    else:
        use = text if code in text and len(text) <= WIDEST and not _comprehends(line) else f"torch.save({code}, path)"
        diff = f"+whole = {code}\n {_test(guard)}:\n-    {use}\n+    {use.replace(code, 'whole')}"
    return Fix("call it on all ranks, and write what it returns on one", diff=diff)


def _comprehends(statement: ast.AST | None) -> bool:
    kinds = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
    return statement is not None and any(isinstance(each, kinds) for each in ast.walk(statement))


def _returned(function: str, guard: str) -> Fix:
    return Fix(
        f"let all ranks call {function}, and print or save on rank 0 only",
        diff=rewritten(guard, f"{function}(...)", result="result"),
    )


def _moved(code: str, guard: str) -> Fix:
    return Fix("call it on all ranks", diff=rewritten(guard, code))


def _looped(loader: str, guard: str) -> Fix:
    return Fix(
        f"let all ranks go through {loader}; a rank that does so alone needs a loader that is not shared out",
        diff=rewritten(guard, f"for batch in {loader}:"),
    )


def _test(guard: str) -> str:
    return shown(guard) if guard.startswith("under `if ") else "if rank == 0"
