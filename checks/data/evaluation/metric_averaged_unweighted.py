"""A metric is the mean of the ranks' means, and the ranks have different numbers of samples.

## What happens

Each rank divides its sum by its own count, and the ranks' results are averaged. Where one rank has 20 samples and
another 11, each of the 11 counts almost twice. The result depends on how the samples were cut, and on the number of
GPUs.

## How to be sure

Sum up hits and counts over all ranks, and divide once: the number differs. ddpdoctor (`ddpdoctor run`) reports an
evaluation in which the ranks went through different numbers of samples, and a single number of each was averaged
afterwards: by ReduceOp.AVG, or summed up in a function that divides by the number of ranks. In the file of the
training: `sum(total / count for total, count in parts) / world_size`, of what the ranks have gathered.

## How to mend it

    total = torch.tensor([hits, count], dtype=torch.float64, device=device)
    dist.all_reduce(total)
    accuracy = (total[0] / total[1]).item()

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.distributed.all_reduce.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evaluated,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    last_name,
    place,
    tree_of,
    watch,
)

from ..._evaluation.counts import WORLDS
from ..._evaluation.evaluations import evaluation, one_number
from ..._evaluation.quotients import divides
from ..._findings.places import file_of_first_step

AILMENT = Ailment("DDP626", Severity.WARNING)


@watch(Evaluated)
def while_training(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Look for an evaluation of shares of different size, of which one number is averaged over the ranks."""
    ranks = evaluation(event, training)
    counts = {rank: each.samples for rank, each in ranks.items()}
    reduced = one_number([each.told.sent for each in ranks.values()])
    if reduced is None or len(set(counts.values())) == 1 or None in counts.values():
        return
    averaged = reduced.reduction == "AVG" or (reduced.reduction == "SUM" and divides(reduced.site)[1])
    if not averaged:
        return
    yield Finding(
        "a metric is the mean of the ranks' means, and they have different numbers of samples: "
        + ", ".join(f"{count} on rank {rank}" for rank, count in [*counts.items()][:8]),
        (
            Evidence("one number of each rank is averaged", "an all_reduce of sums and counts", str(reduced.site)),
            *(
                Evidence(f"{count} samples", "", f"rank {rank}, the loop of {event.site}")
                for rank, count in counts.items()
            ),
        )[:9],
        Fix(
            "add up sums and counts, then divide once",
            diff="-dist.all_reduce(mean)\n-mean /= world_size\n"
            "+total = torch.tensor([hits, count], dtype=torch.float64, device=device)\n"
            "+dist.all_reduce(total)\n+mean = total[0] / total[1]",
        ),
        place(reduced.site),
    )


@watch(StepFingerprinted)
def in_the_file(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look into the file of a training for ratios of gathered sums and counts that are averaged over the ranks."""
    file = file_of_first_step(event, training)
    if not file or training.world_size < 2:  # noqa: PLR2004 - nobody else
        return
    for quotient in _means_of_ratios(tree_of(file).module):
        yield Finding(
            "a metric is the mean of the ranks' means: what each has summed is divided by its own count",
            (Evidence(ast.unparse(quotient), "the sum of the sums by the sum of the counts",
                      f"{file}:{quotient.lineno}"),),
            Fix(
                "add up sums and counts, then divide once",
                diff="-sum(total / count for total, count in parts) / world_size\n"
                "+sum(total for total, _ in parts) / sum(count for _, count in parts)",
            ),
            Place(file=file, line=quotient.lineno),
        )  # fmt: skip


def _means_of_ratios(module: ast.Module) -> Iterator[ast.BinOp]:
    """Yield them: the sum of ``a / b`` over what each rank has given, by the number of ranks."""
    gathered = {
        each.args[0].id
        for each in ast.walk(module)
        if isinstance(each, ast.Call)
        and last_name(each.func) in {"all_gather_object", "gather_object"}
        and each.args
        and isinstance(each.args[0], ast.Name)
    }
    for node in ast.walk(module):
        match node:
            case ast.BinOp(
                op=ast.Div(),
                left=ast.Call(
                    func=ast.Name(id="sum"),
                    args=[
                        ast.GeneratorExp(
                            elt=ast.BinOp(op=ast.Div(), left=above, right=below),
                            generators=[ast.comprehension(target=target, iter=ast.Name(id=name))],
                        )
                    ],
                ),
                right=divisor,
            ) if name in gathered:
                taken = {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
                sides = [{each.id for each in ast.walk(side) if isinstance(each, ast.Name)} for side in (above, below)]
                by_ranks = WORLDS.search(ast.unparse(divisor)) or ast.unparse(divisor) == f"len({name})"
                if all(side & taken for side in sides) and by_ranks:
                    yield node
