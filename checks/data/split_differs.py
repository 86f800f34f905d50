"""Each rank splits the data for itself, at random: what one rank trains on, another one evaluates.

## What happens

`random_split` of torch without a `generator`, and `train_test_split` of scikit-learn without `random_state`, draw from
the random numbers of their process. Unless somebody has seeded them alike, each rank has another split. A
DistributedSampler then deals out positions of different data sets: some samples are trained on several times in an
epoch, others never, and what one rank holds out is trained on by the others, so the validation says too much.

With `mp.spawn` it happens at the top of the file as well: each of the processes runs those lines anew.

## How to be sure

Print `sorted(train_data.indices)[:5]` on each rank: the ranks agree where the split is seeded, and differ where it is
not. `ddpdoctor lint` reports a split that all ranks come to, in a project whose files seed nothing.

## How to mend it

Seed the split itself: `random_split(data, lengths, generator=torch.Generator().manual_seed(0))`, or
`train_test_split(data, random_state=0)`.

## Versions and sources

Holds for torch 2.2 to 2.13: the default generator of a process begins with a number of the operating system
(torch's aten/src/ATen/CPUGeneratorImpl.cpp, `getDefaultCPUGenerator`). Run with torch 2.13 and two gloo ranks, 100
samples split 80 to 20: 17 of the 20 that rank 0 had held out were in rank 1's training set; an epoch went through 63
different samples, 17 of them on both ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, is_open, keyword, lint

from .._source import SAMPLER

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP663", Severity.ERROR)
SPLITS = {
    "torch.utils.data.random_split": ("generator", "torch.Generator().manual_seed(0)"),
    "sklearn.model_selection.train_test_split": ("random_state", "0"),
}
SEEDED = (
    r"seed\w*\(|generator=|random_state=|broadcast(?!_param|_opt|_buf)|rng_state|RandomState|default_rng|Generator\("
    r"|scatter"
)
"""What says that the ranks are made to draw alike, or that one of them tells the others."""
STARTS = ("torch.multiprocessing.spawn",)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a random split that each rank makes, where nothing in reach is seeded."""
    if script.frameworks - {"horovod"} or not script.calls(SAMPLER) or project.says(SEEDED):
        return
    for call in script.calls(*SPLITS):
        word, value = SPLITS[script.resolve(call.func) or ""]
        shuffles = keyword(call, "shuffle")
        if (
            is_open(call)
            or keyword(call, word) is not None
            or (isinstance(shuffles, ast.Constant) and not shuffles.value)
        ):
            continue
        if script.waits_before(call) or not _on_each_rank(script, call):
            continue
        yield Finding(
            f"each rank splits the data for itself: {script.code(call.func)} is not seeded, so no two ranks agree",
            (script.seen(call, f"{word}={value}"),),
            Fix(
                "seed the split, so that all ranks make the same",
                edits=(script.keyword_added(call, f"{word}={value}"),),
            ),
            script.place(call),
        )


def _on_each_rank(script: Script, call: ast.Call) -> bool:
    """Whether all ranks come to a call; those that are spawned run the top of the file once more."""
    if not script.joins and not script.calls("horovod.torch.init"):
        return False
    if script.function(call) is None and script.calls(*STARTS):
        return (
            script.cells is None
            and not script.guards(call)
            and script.tree.class_of(call) is None
            and not _parents_alone(script, call)
        )
    return script.all_ranks_reach(call)


def _parents_alone(script: Script, call: ast.Call) -> bool:
    """Whether what is split goes to the ranks as an argument of spawn."""
    statement = script.tree.statement(call)
    names = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)} if statement else set()
    passed = [node for start in script.calls(*STARTS) for node in ast.walk(start) if isinstance(node, ast.Name)]
    return any(each.id in names for each in passed)
