"""What is read of generators, sources and schedules of the user's, without calling anything of theirs."""

from __future__ import annotations

import ast
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ddpdoctor.checks._evaluation.rank_parts import told_alone
from ddpdoctor.checks.collectives._dropped import dropped
from ddpdoctor.checks.data.draws._held import draws_what_ranks_try
from ddpdoctor.watch.events import HeldGenerator
from ddpdoctor.watch.rank.data.generators import seed_of, state_of
from ddpdoctor.watch.rank.data.passes import Feed, Pass
from ddpdoctor.watch.rank.hooks.written import lengths_written

if TYPE_CHECKING:
    from pathlib import Path


def test_the_length_of_a_schedule_is_the_product_that_is_written() -> None:
    """A number is not what a schedule is made for where only a product with it is meant."""
    updates, accumulate, config = 12, 3, SimpleNamespace(warmup=7)

    assert lengths_written(lambda step: 1 - step / (updates * accumulate)) == [1, 36]
    assert lengths_written(lambda step: min(1, (step + 1) / config.warmup)) == [1, 1, 7]
    assert lengths_written(lambda step: step / (updates - accumulate)) == [9, 12, 3]
    assert lengths_written(SimpleNamespace(total=12)) is None


def _of_torch() -> Any:
    import torch

    return torch.Generator()


def _of_numpy() -> Any:
    import numpy as np

    return np.random.default_rng(3)


@pytest.mark.parametrize("made", [_of_torch, _of_numpy, lambda: random.Random(3)])  # noqa: S311 - the user's own
def test_a_generator_is_read_and_stays_as_it_is(made: Any) -> None:
    """What comes next is what would have come."""
    import torch

    one, other = made(), made()
    state_of(one)
    seed_of(one)

    def draw(generator: Any) -> Any:
        return torch.rand(3, generator=generator).tolist() if isinstance(one, torch.Generator) else generator.random()

    assert draw(one) == draw(other)


DRAWS = """
class Carts:
    def reset(self):
        self.x = self.rng.integers(0, 3)
    def step(self, push):
        return self.rng.normal()

class Minibatches:
    def order(self, n):
        return self.rng.permutation(n)

class Masks:
    def draw(self, x):
        return torch.rand(x.shape, generator=self.rng), torch.multinomial(self.probs, 1, generator=self.rng)
"""


@pytest.mark.parametrize(("kind", "tries"), [("Carts", True), ("Minibatches", False), ("Masks", True)])
def test_orders_are_no_noise(tmp_path: Path, kind: str, tries: bool) -> None:  # noqa: FBT001
    """Of an order that is drawn alike on all ranks each can take its part."""
    file = tmp_path / "train.py"
    file.write_text(DRAWS, encoding="utf-8")

    assert draws_what_ranks_try(HeldGenerator("agent.x.rng", kind, str(file), "state", "1")) is tries


SCORES = """
@torch.no_grad()
def score(model, rows, rank, world):
    total = 0.0
    for row in rows[rank::world]:
        total += model(row).item()
    return total / len(rows[rank::world])

best = score(model, rows, 0, 2)
"""


@pytest.mark.parametrize(
    ("told", "alone"),
    [
        ("print(best)", True),
        ("dist.all_reduce(torch.tensor(best))", False),
        ("best = torch.tensor(best)", False),
        ("report(best)", False),
        ("def tell(x):\n    dist.all_reduce(x)\ntell(best)", False),
    ],
)
def test_a_mean_of_a_part_is_told_where_nothing_brings_it_together(told: str, alone: bool) -> None:  # noqa: FBT001
    """What a function of elsewhere is given, it can reduce."""
    assert bool(list(told_alone(ast.parse(SCORES + told)))) is alone


GATHERED = """
def score(hits, seen):
    parts = [None] * world
    dist.all_gather_object(parts, (hits, seen))
    {told}
"""


@pytest.mark.parametrize(
    ("told", "given"),
    [
        ("return hits / seen", ["hits"]),
        ("return sum(p[0] for p in parts) / seen", ["seen"]),
        ("return sum(p[0] for p in parts) / sum(p[1] for p in parts)", []),
        ("return sum(h for h, _ in parts) / seen", ["seen"]),
        ("print(hits, parts)", []),
        ("hits, seen = map(sum, zip(*parts))\n    return hits / seen", []),
        ("hits = sum(p[0] for p in parts)\n    return hits, [p[1] for p in parts]", []),
    ],
)
def test_what_is_gathered_in_a_tuple_is_followed_by_its_parts(told: str, given: list[str]) -> None:
    """A part that nobody takes out again is the rank's own where it is read."""
    found = list(dropped(ast.parse(GATHERED.format(told=told))))

    assert [each.given for each in found] == given


def _pass() -> Pass:
    return Pass(0, 0, iterable=False, site=None, digested=0, stride=1)


@pytest.mark.parametrize(("drawn", "forwards", "taken"), [(1, 1, 1), (3, 3, 1), (3, 1, 0), (4, 3, 0)])
def test_batches_that_are_drawn_together_count_when_all_have_gone_through(
    drawn: int, forwards: int, taken: int
) -> None:
    """Of a window of micro-batches each goes through the model; of what is only counted, none, or one."""
    import torch

    draws: Any = SimpleNamespace(gave=lambda _: None, taken=lambda _: None)
    feed, this = Feed(draws, SimpleNamespace()), _pass()  # type: ignore[arg-type]
    for _ in range(drawn):
        feed.gave(this, torch.zeros(2, 3))
    for _ in range(forwards):
        feed.taken(SimpleNamespace(training=True), (torch.zeros(2, 3),))

    assert this.forwards == taken
