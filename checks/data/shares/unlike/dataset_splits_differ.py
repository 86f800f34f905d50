"""The ranks split, or order, the data differently before a sampler shares it out.

## What happens

A DistributedSampler gives rank r each world-size-th *position*. That is a share only if a position means the same
sample on each rank. `random_split` without a generator draws another split on each rank, and so does
`random.shuffle(files)`. `os.listdir` and `glob` give files in the order of the file system, which differs between
machines. Then samples come to several ranks and others to none, and the samples that one rank holds back for
validation are another's training data.

## How to be sure

Print the first file names, or `subset.indices[:8]`, on each rank. While the training runs (`ddpdoctor run`), ddpdoctor
compares digests of the indices of a Subset, and of a list or an array of the data set with an entry for each sample; of
a TensorDataset it takes targets that are all different, since inputs may be scaled by what a rank has computed.
It reports the same entries in another order, entries of which a part is the same, or other indices of the same data,
under samplers that share out by rank, those of Accelerate and of the transformers Trainer among them.

In a source (`ddpdoctor lint`) it reports `random_split` without a generator, or scikit-learn's `train_test_split`
without random_state, that all ranks come to, where nothing in reach is seeded, or where the last seed before it has the
rank in it (`manual_seed(42 + rank)`); `train_test_split` and `shuffle` of a
data set of Hugging Face without a seed, also under a transformers Trainer that a launcher starts; and `random_split` in
the `setup` of a module of Lightning, whose Trainer starts the script once for each GPU. With `mp.spawn` the
top of the file counts as well: each of the processes runs those lines anew.

Run with torch 2.13 and two gloo ranks, 100 samples split 80 to 20: 17 of the 20 that rank 0 had held out were in rank
1's training set; an epoch went through 63 different samples, 17 of them on both ranks.

## How to mend it

Pass the same generator to `random_split` on all ranks, `generator=torch.Generator().manual_seed(0)`, and put
`sorted(...)` around what lists files. Where the Subset is the rank's share already, leave the sampler out.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"torch.utils.data.random_split".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    OrderSeen,
    Severity,
    Training,
    is_open,
    keyword,
    lint,
    place,
    seeded_by_rank,
    watch,
)

from ...._scripts.source import OF_THE_MODEL, SAMPLER
from ..._passes import has_shares_of_its_own, same_pass, shared_out_by_a_library, splitting
from ..._words import SHOWN, sharer
from ._in_setup import splits_in_setup
from ._orders import in_its_words, of_the_kind, ordered_differently, overlap, place_of
from ._split_in_ranks import SPLITTERS, is_launched, is_on_each_rank, is_shared_out, splits
from ._split_mended import SORT, SPLIT, SPLIT_ALIKE, SPLIT_TENSORS

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP641", Severity.ERROR)


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare what a position means on each rank, where samplers share positions out."""
    ranks = same_pass(event, training)
    data = {rank: each.data for rank, each in ranks.items() if each.data is not None}
    by_library = shared_out_by_a_library(ranks)
    lengths = {each.started.length for each in ranks.values()}
    if not (by_library or splitting(ranks)) or len(data) < len(ranks) or len(lengths) > 1:
        return
    seen = list(data.values())
    if by_library and has_shares_of_its_own(seen):
        return  # another check tells of what is shared out twice
    if all(each.picks for each in seen):
        differ = len({each.picks for each in seen}) > 1 and len({each.base for each in seen}) == 1
        what, fix = "has a Subset of its own", SPLIT
    else:
        differ = ordered_differently(seen)
        fix = SPLIT_TENSORS if seen[0].name == "tensors" else SORT
        what = f"has {seen[0].name} in another order"
        if not differ and overlap(seen):
            differ, what = True, f"has {seen[0].name} of its own, with entries that other ranks have as well"
    if not differ:
        return
    by = sharer(training) if by_library else "the sampler"
    lines = splits(event, training) if fix is SPLIT else []
    yield Finding(
        f"each rank {what}, before {by} shares it out: shares overlap, and leave samples out",
        tuple(
            Evidence(f"begins {', '.join(each.first)}", "the same on each rank", f"rank {rank}'s data set")
            for rank, each in data.items()
        )[:SHOWN]
        + tuple(lines[:SHOWN]),
        of_the_kind(seen) or in_its_words(lines, SPLIT_ALIKE if by_library and fix is SPLIT else fix),
        place_of(lines) or place(next(iter(ranks.values())).started.made),
    )


GENERATORS = {
    "torch.utils.data.random_split": frozenset({"torch.manual_seed", "torch.random.manual_seed"}),
    "sklearn.model_selection.train_test_split": frozenset({"numpy.random.seed"}),
}
"""What seeds the generator of the process that each of them draws from."""
SEEDED = (
    r"seed\w*\(|generator=|random_state=|broadcast(?!_param|_opt|_buf)|rng_state|RandomState|default_rng|Generator\("
    r"|scatter"
)
"""What says that the ranks are made to draw alike, or that one of them tells the others."""
TOLD = r"broadcast(?!_param|_opt|_buf)|rng_state|scatter"
"""What says that one of the ranks tells the others, or that a state is put back."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a random split that each rank makes, where nothing in reach is seeded."""
    if script.frameworks - {"horovod", *OF_THE_MODEL} or project.does(SEEDED) or not is_shared_out(script, project):
        return
    for call in script.calls(*SPLITTERS):
        word, value = SPLITTERS[script.resolve(call.func) or ""]
        shuffles = keyword(call, "shuffle")
        if (
            is_open(call)
            or keyword(call, word) is not None
            or (isinstance(shuffles, ast.Constant) and not shuffles.value)
        ):
            continue
        if script.waits_before(call) or not is_on_each_rank(script, call):
            continue
        yield Finding(
            f"each rank splits the data for itself: {script.code(call.func)} is not seeded, so no two ranks agree",
            (script.seen(call, f"{word}={value}"),),
            _seeded(script, call, f"{word}={value}"),
            script.place(call),
        )


@lint
def seeded_apart(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a random split that each rank makes after it has seeded its generator with its own rank."""
    if script.frameworks - OF_THE_MODEL or not is_shared_out(script, project) or project.does(TOLD):
        return
    for call in script.calls(*SPLITTERS):
        path = script.resolve(call.func) or ""
        word, value = SPLITTERS[path]
        if is_open(call) or keyword(call, word) is not None or ast.unparse(call).endswith("shuffle=False)"):
            continue
        seed = seeded_by_rank(script.tree, call, GENERATORS[path])
        if seed is None or script.waits_before(call) or not is_on_each_rank(script, call):
            continue
        yield Finding(
            f"each rank splits the data for itself: {script.code(call.func)} draws after a seed that has the rank in "
            "it, so no two ranks agree",
            (script.seen(call, f"{word}={value}"), script.seen(seed, "the same seed on all ranks before the split")),
            _seeded(script, call, f"{word}={value}"),
            script.place(call),
        )


@lint
def in_setup(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a random split in a module of Lightning that trains in several processes, where nothing is seeded."""
    frameworks = script.frameworks - OF_THE_MODEL
    if not frameworks or frameworks - {"lightning", "pytorch_lightning"} or project.does(SEEDED):
        return
    for call in splits_in_setup(script, project):
        word, value = SPLITTERS[script.resolve(call.func) or ""]
        yield Finding(
            f"each rank splits the data for itself: {script.code(call.func)} is not seeded, and Lightning has each "
            "process set its data up",
            (script.seen(call, f"{word}={value}"),),
            _seeded(script, call, f"{word}={value}"),
            script.place(call),
        )


def _seeded(script: Script, call: ast.Call, seed: str) -> Fix:
    """Return the edit that gives a split its seed; none where the file has not imported what the seed names."""
    is_known = "=torch." not in seed or script.has_module("torch")
    edits = (script.keyword_added(call, seed),) if is_known else ()
    return Fix("seed the split, so that all ranks make the same", edits=edits)


OF_NUMPY = r"(?<!manual_)seed\w*\(|generator=|RandomState|rng_state|broadcast(?!_param|_opt|_buf)|scatter"
"""What says that numpy's own state is the same on all ranks, which Hugging Face's data sets draw their seed of."""


@lint
def of_hugging_face(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a split or an order of a data set of Hugging Face without a seed, where nothing in reach seeds numpy."""
    by_trainer = script.frameworks == {"transformers"} and "Trainer(" in script.text
    if not by_trainer and (script.frameworks or not script.calls(SAMPLER)):
        return
    if project.does(OF_NUMPY) or not project.says(r"\bload_dataset\b|\bload_from_disk\b"):
        return
    for call in script.nodes(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in OF_ROWS or is_open(call):
            continue
        if any(each.arg in {"seed", "generator"} or ast.unparse(each) == "shuffle=False" for each in call.keywords):
            continue
        if (script.resolve(call.func) or "").startswith("sklearn") or script.waits_before(call):
            continue
        if call.func.attr == "shuffle" and (call.args or call.keywords):
            continue  # a list's, or that of a stream, with its buffer
        is_reached = is_launched(script, project, call) if by_trainer else is_on_each_rank(script, call)
        if is_reached:
            does = OF_ROWS[call.func.attr]
            yield Finding(
                f"each rank {does} the data for itself: {call.func.attr} has no seed, so no two ranks agree",
                (script.seen(call, "seed=0"),),
                Fix("seed it, so that all ranks make the same", edits=(script.keyword_added(call, "seed=0"),)),
                script.place(call),
            )


OF_ROWS = {"train_test_split": "splits", "shuffle": "shuffles"}
"""Methods of a data set of Hugging Face that draw numbers."""
