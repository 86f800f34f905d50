"""Random numbers that a data set draws as it is asked for samples, alike on all ranks.

Those before the first batch are an order's. A sampler that draws index by index does so alike on all ranks, and torch's
own has a generator of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Drew,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    Site,
    Training,
    last_name,
    place,
    statement_at,
    tree_of,
)

from .._lines import SEEDS, process_seeded_alike
from ._states import GENERATORS, apart, fetched_alike, shared_out

OF = " of "


def as_read(event: Drew, batches: list[dict[int, Drew]], training: Training) -> Iterator[Finding]:
    """Look for a generator of which the data set draws the same numbers on all ranks, for other samples on each."""
    started = training.by_rank(EpochStarted, loader=event.loader, number=0)
    kinds = {each.sampler.kind if each.sampler is not None else "" for each in started.values()}
    held = [name for name, _, _ in event.fetched if name not in GENERATORS]
    draws = kinds != {"DistributedSampler"} and any(each.sampler and each.sampler.draws for each in started.values())
    asked = held if draws else (*GENERATORS, *held)  # what a sampler draws as it goes, it can draw for all ranks alike
    name = next((each for each in asked if all(fetched_alike(ranks, each) for ranks in batches)), None)
    if name is None or not shared_out(started):
        return
    if kinds == {"DistributedSampler"}:
        if any(each.sampler.replicas != len(started) for each in started.values() if each.sampler):
            return
    elif not all(each.sampler and (each.sampler.splits or each.sampler.shares) for each in started.values()):
        return
    dataset = next(each.dataset for each in started.values())
    told = {rank: next(each for each in drew.fetched if each[0] == name) for rank, drew in batches[-1].items()}
    count = "numbers" if name in held else f"{min(each[2] for each in told.values())} numbers or more"
    made = _made_at(name, event.site) if name in held else None
    yield Finding(
        f"{len(told)} ranks draw the same random numbers for their samples: {name} is in one state on all as {dataset} "
        "is read",
        tuple(
            Evidence(f"state {state} after batch {event.batch}, {count} drawn for it", "another on each rank",
                     f"rank {rank}, the loop of {event.site}")
            for rank, (_, state, _) in told.items()
        )[:8],
        _held_fix(name, made, training) if name in held else apart(name, training),
        place((made if name in held else process_seeded_alike(event.site)) or event.site),
    )  # fmt: skip


def _held_fix(name: str, made: Site | None, training: Training) -> Fix:
    """Return the line that makes the generator, or one like it, with the rank in its seed."""
    rank = training.framework.rank if training.framework else "dist.get_rank()"
    line, seed = f"self.{name.partition(OF)[0]} = random.Random(seed)", "seed"
    statement = statement_at(tree_of(made.file), made.line) if made else None
    if isinstance(statement, ast.Assign):
        calls = [each for each in ast.walk(statement) if isinstance(each, ast.Call) and each.args]
        seeding = next((each for each in calls if last_name(each.func) in SEEDS), None)
        if seeding is not None:
            line, seed = ast.unparse(statement), ast.unparse(seeding.args[0])
    diff = f"-{line}\n+{line.replace(f'({seed}', f'({seed} + 1000 * {rank}')}"
    return Fix("seed with the rank as well", diff=diff)


def _made_at(name: str, site: Site | None) -> Site | None:
    """Return the line that makes a generator with a seed: for the attribute, or for a name that the class is given."""
    if site is None:
        return None
    attribute, _, owner = name.partition(OF)
    tree = tree_of(site.file)
    inside = [
        call.lineno
        for call in tree.of(ast.Call)
        if last_name(call.func) == owner and any(map(_seeds, (*call.args, *(word.value for word in call.keywords))))
    ]
    if len(inside) == 1:
        return site._replace(line=inside[0])
    given = {
        part.id
        for call in tree.of(ast.Call)
        if last_name(call.func) == owner
        for each in (*call.args, *(word.value for word in call.keywords))
        for part in ast.walk(each)
        if isinstance(part, ast.Name)
    }
    for names in ({attribute}, given):
        found = [each for each in tree.of(ast.Assign) if _makes(each) and names & {*map(last_name, each.targets)}]
        if len(found) == 1:
            return site._replace(line=found[0].lineno)
    return None


def _makes(assigned: ast.Assign) -> bool:
    return _seeds(assigned.value)


def _seeds(node: ast.expr) -> bool:
    """Whether an expression makes a generator with a seed."""
    calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(each.args and last_name(each.func) in SEEDS for each in calls)
