"""A gather of the script's own does not add up in backward what the ranks' losses say of each sample.

## What happens

`all_gather` has no gradient, so trainings wrap it in a `torch.autograd.Function`. Its backward is given, on each rank,
what this rank's loss says of the samples of all ranks. What a sample is to learn is the sum of what all ranks' losses
say of it: DDP divides by the number of ranks afterwards. Where backward hands on its own rank's part alone
(`grads[dist.get_rank()]`), what the others' losses say is lost; where it divides the sum as well, or takes the part of
another rank, it is N times too small, or of other samples. Nothing fails, and the loss goes down.

## How to be sure

Compare the gradients with those of one process that has the whole batch. ddpdoctor (`ddpdoctor run`) looks, in compared
steps, at an all_gather in the `forward` of such a function that is given what has a gradient, in a training whose
gradients are averaged over all ranks; and at what the source of its `backward` does: it calls no communication, or
divides by the number of ranks, or takes a fixed place of what was added up.

So is a function of one's own that adds up over the ranks in forward (statistics of normalisation, say), where backward
calls no communication and each rank's loss is another: each of the losses has the sum in it.

Silent where the script multiplies a gradient or a loss by the number of ranks, which makes up for it where all ranks
compute the same loss, where backward calls other functions of the script's own, and for gathers within a group, as
those of parallelism within a model.

## How to mend it

    @staticmethod
    def backward(ctx, *grads):
        total = torch.stack(grads)
        torch.distributed.all_reduce(total)
        return total[torch.distributed.get_rank()]

Or use torch's own: `torch.distributed.nn.functional.all_gather`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: torch's torch/distributed/nn/functional.py
(`_AllGather.backward` adds up over the ranks); PyTorch documentation, DistributedDataParallel.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Exchange,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    last_name,
    tree_of,
    watch,
)

from .._alike import earlier, without_parallelism

AILMENT = Ailment("DDP1578", Severity.WARNING)
SURE = 2  # steps
WORLD = re.compile(r"world|n_?ranks|num_ranks|replicas|n_?gpus|num_gpus|nprocs|num_processes|get_size", re.IGNORECASE)
TALKS = re.compile(r"reduce|gather|scatter|all_to_all|broadcast|psum|^send$|^recv$|sync")
PLAIN = {"tuple", "list", "range", "len", "zip", "enumerate", "int", "isinstance", "slice", "sum"}


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look at functions that gather, and at what their backward does, in each of the last steps."""
    ranks = without_parallelism(event, training)
    if not ranks:
        return
    past = [ranks, *earlier(event, training)]
    if len(past) != SURE:
        return
    for file, line in set.intersection(*map(_gathers, past)):
        found = _wrong(file, line)
        if found is not None:
            yield _finding(len(ranks), event, (file, line), found)
    if all(_has_own_losses(each) for each in past):
        for file, line in set.intersection(*map(_reduces, past)):
            if (at := _handed_on(file, line, event)) and at:
                yield _reduced(len(ranks), event, (file, line), at)


def _has_own_losses(ranks: dict[int, StepFingerprinted]) -> bool:
    """Whether each rank asks for the gradients of a loss of its own: of one that all have, the sum is counted once."""
    losses = [each.loss for each in ranks.values()]
    return None not in losses and len(set(losses)) == len(losses)


def _reduces(ranks: dict[int, StepFingerprinted]) -> set[tuple[str, int]]:
    """Return the lines that add up over all ranks before backward, on all ranks."""
    told = [
        {(each.file, each.line) for each in step.exchanges
         if each.operation == "all_reduce" and each.when == "before backward"}
        for step in ranks.values()
    ]  # fmt: skip
    return set.intersection(*told)


def _handed_on(file: str, line: int, event: StepFingerprinted) -> int:
    """Return the last line of a backward that communicates nothing, where forward adds up; 0 where it does."""
    tree = tree_of(file).module
    owner = next((each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and _gathers_at(each, line)), None)
    backward = _method(owner, "backward") if owner is not None else None
    steps = tree_of(event.site.file).module if event.site is not None else tree
    if owner is None or backward is None or _multiplies_by_world(owner) or _multiplies_by_world(steps):
        return 0
    calls = [each for each in ast.walk(backward) if isinstance(each, ast.Call)]
    if any(TALKS.search(last_name(each.func) or "") for each in calls) or not all(map(_is_plain, calls)):
        return 0
    ends = [each for each in ast.walk(backward) if isinstance(each, ast.Return) and each.value is not None]
    return ends[-1].lineno if ends else 0


def _reduced(ranks: int, event: StepFingerprinted, sums: tuple[str, int], at: int) -> Finding:
    file, line = sums
    code = next((each for each in tree_of(file).of(ast.Return) if each.lineno == at and each.value is not None), None)
    given = ast.unparse(code.value) if code is not None and isinstance(code.value, ast.Name) else "gradient"
    return Finding(
        f"the backward of an all_reduce hands on what its own rank's loss says alone: {ranks} ranks have losses of "
        "their own, and what a sample changes in those of the others is lost",
        (
            Evidence(
                "all_reduce in forward: the sum is part of each rank's loss", "", f"{file}:{line}, step {event.number}"
            ),
            Evidence(
                "backward communicates nothing", "the gradients of the sum, added up over all ranks", f"{file}:{at}"
            ),
        ),
        Fix(
            "add up the gradients in backward as well",
            diff=f" def backward(ctx, {given}):\n+    {given} = {given}.contiguous().clone()\n"
            f"+    dist.all_reduce({given})\n     return {given}",
        ),
        Place(file=file, line=at),
    )


def _gathers(ranks: dict[int, StepFingerprinted]) -> set[tuple[str, int]]:
    """Return the lines that gather what has a gradient before backward, on all ranks."""
    told = [{(each.file, each.line) for each in step.exchanges if _is_gather(each)} for step in ranks.values()]
    return set.intersection(*told)


def _is_gather(each: Exchange) -> bool:
    return "all_gather" in each.operation and each.when == "before backward" and each.learnt


def _wrong(file: str, line: int) -> tuple[str, int] | None:
    """Return what the backward of the function around a line does wrong, and where; None where it is right."""
    tree = tree_of(file).module
    owner = next((each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and _gathers_at(each, line)), None)
    backward = _method(owner, "backward") if owner is not None else None
    if backward is None or _multiplies_by_world(tree):
        return None
    calls = [each for each in ast.walk(backward) if isinstance(each, ast.Call)]
    talks = [each for each in calls if TALKS.search(last_name(each.func) or "")]
    if not talks:
        ends = [each for each in ast.walk(backward) if isinstance(each, ast.Return) and each.value is not None]
        known = all(_is_plain(each) for each in calls)
        return ("hands on what its own rank's loss says alone", ends[-1].lineno) if known and ends else None
    if divided := next(
        (each.lineno for each in ast.walk(backward) if isinstance(each, (ast.stmt, ast.expr)) and _divides(each)), 0
    ):
        return "divides the sum by the number of ranks, as DDP does again", divided
    if any("AVG" in ast.unparse(each) for each in talks):
        return "averages over the ranks, as DDP does again", talks[0].lineno
    if all("all_reduce" in ast.unparse(each.func) for each in talks) and (at := _fixed_place(backward, talks)):
        return "hands on the part of one and the same rank", at
    return None


def _gathers_at(owner: ast.ClassDef, line: int) -> bool:
    """Whether a line is in the forward of a function of autograd's, and gathers from all ranks."""
    forward = _method(owner, "forward")
    if forward is None or not any("Function" in ast.unparse(base) for base in owner.bases):
        return False
    inside = forward.lineno <= line <= (forward.end_lineno or 0)
    return inside and not any(each.arg == "group" for each in ast.walk(owner) if isinstance(each, ast.keyword))


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == name), None)


def _is_plain(call: ast.Call) -> bool:
    """Whether a call can bring nothing of another rank: a method of a tensor, or a function of torch or Python."""
    if isinstance(call.func, ast.Name):
        return call.func.id in PLAIN or call.func.id.startswith("get_")
    owner = ast.unparse(call.func).partition(".")[0]
    return isinstance(call.func, ast.Attribute) and owner not in {"self", "cls"}


def _divides(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.Div(), right=divisor) | ast.AugAssign(op=ast.Div(), value=divisor):
            pass
        case ast.Call(func=ast.Attribute(attr="div" | "div_"), args=[divisor, *_]):
            pass
        case _:
            return False
    return bool(WORLD.search(ast.unparse(divisor)))


def _multiplies_by_world(tree: ast.AST) -> bool:
    """Whether anything in the file is multiplied by the number of ranks."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=ast.Mult(), left=left, right=right):
                parts = [left, right]
            case ast.AugAssign(op=ast.Mult(), value=value):
                parts = [value]
            case ast.Call(func=ast.Attribute(attr="mul" | "mul_"), args=[value, *_]):
                parts = [value]
            case _:
                continue
        if any(WORLD.search(ast.unparse(each)) for each in parts):
            return True
    return False


def _fixed_place(backward: ast.FunctionDef, talks: list[ast.Call]) -> int:
    """Return the line that hands on a fixed place of what was added up; 0 where there is none."""
    added = {ast.unparse(each.args[0]) for each in talks if each.args}
    for node in ast.walk(backward):
        match node:
            case ast.Return(value=ast.Subscript(value=value, slice=ast.Constant(value=int()))):
                if ast.unparse(value) in added:
                    return node.lineno
    return 0


def _finding(ranks: int, event: StepFingerprinted, gather: tuple[str, int], found: tuple[str, int]) -> Finding:
    (file, line), (what, at) = gather, found
    return Finding(
        f"the backward of a gather {what}: the gradients are not those of one process with the samples of {ranks} "
        "ranks",
        (
            Evidence("all_gather is given what has a gradient", "", f"{file}:{line}, step {event.number}"),
            Evidence(f"backward {what}", "the sum over all ranks, of it this rank's part", f"{file}:{at}"),
            Evidence(f"the gradients of the weights are averaged over {ranks} ranks", "", f"step {event.number}"),
        ),
        Fix(
            "add up over the ranks in backward, and hand on this rank's part",
            diff=" def backward(ctx, *grads):\n+    total = torch.stack(grads)\n"
            "+    torch.distributed.all_reduce(total)\n+    return total[torch.distributed.get_rank()]",
        ),
        Place(file=file, line=at),
    )
