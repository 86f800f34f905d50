"""Calls behind a test that each rank's own batch decides, metrics that one rank logs, shards that ranks scale apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from helpers import CHECKS

from ddpdoctor.source.reach.data import batch_condition
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import (
    Communication,
    Doing,
    Event,
    Failed,
    Joined,
    MetricSynced,
    PeerLost,
    Position,
    Progress,
    ShardedGradient,
    Site,
    Stalled,
    StepFingerprinted,
)

DECIDED = {
    "an element of a mask": """
        for x, y in loader:
            wrong = model(x).argmax(-1) != y
            if wrong[0]:
                accelerator.gather(x)  # here
        """,
    "the batch is counted from 0": """
        for step, batch in enumerate(loader):
            if batch["labels"].sum() == 0:
                dist.all_reduce(x)  # here
        """,
    "an early return in a helper, of a number that the caller counts": """
        def add(hits, count):
            if count == 0:
                return
            accelerator.reduce(hits / count)  # here
        for x, y in loader:
            rare = y == 0
            add(rare.sum(), int(rare.sum()))
        """,
    "a loss that is not finite is skipped": """
        for x, y in loader:
            loss = criterion(model(x), y)
            if torch.isnan(loss):
                continue
            loss.backward()  # here
        """,
    "the best loss so far": """
        def save_best(value, best):
            if value < best:
                accelerator.wait_for_everyone()  # here
        for epoch in range(3):
            total = 0.0
            for x, y in loader:
                loss = model(x).mean()
                total += loss.item()
            save_best(total, best)
        """,
    "a step that a framework calls": """
        class Net(LightningModule):
            def training_step(self, batch, batch_idx):
                x, y = batch
                if (y == 0).all():
                    self.log("zeros", 1.0, sync_dist=True)  # here
        """,
    "what a step of Ignite gave": """
        from ignite.engine import Engine, Events
        trainer = Engine(lambda engine, batch: step(batch))
        @trainer.on(Events.ITERATION_COMPLETED)
        def tell(engine):
            if engine.state.output["loss"] > 2:
                idist.all_reduce(1.0)  # here
        """,
    "the filter of an event of Ignite": """
        from ignite.engine import Events
        @trainer.on(Events.ITERATION_COMPLETED(event_filter=lambda engine, event: engine.state.output > 2))
        def tell(engine):
            idist.all_reduce(1.0)  # here
        """,
    "a function as the filter of an event, for a method": """
        from ignite.engine import Events
        class Training:
            def __init__(self, trainer):
                trainer.add_event_handler(Events.ITERATION_COMPLETED(event_filter=is_hard), self.look)
            def look(self, engine):
                self.evaluator.run(self.loader)  # here
        def is_hard(engine, event):
            loss = engine.state.output["loss"]
            return loss > 2
        """,
}
NOT_DECIDED = {
    "a counter": """
        for step, (x, y) in enumerate(loader):
            if step % 10 == 0:
                dist.all_reduce(x)  # here
        """,
    "an epoch": """
        for epoch in range(3):
            for x, y in loader:
                pass
            if epoch % args.every == 0:
                dist.barrier()  # here
        """,
    "an option": """
        def train(args):
            if args.log:
                dist.all_reduce(x)  # here
        """,
    "a value that was reduced": """
        for x, y in loader:
            mean = accelerator.reduce(model(x).mean(), "mean")
            if mean > 100:
                accelerator.wait_for_everyone()  # here
        """,
    "a flag that was reduced in place": """
        for x, y in loader:
            bad = (y == 0).any().float()
            dist.all_reduce(bad)
            if not bad:
                continue
            dist.all_gather(out, x)  # here
        """,
    "a condition on the rank": """
        for x, y in loader:
            if rank == 0:
                dist.barrier()  # here
        """,
    "nothing": """
        for x, y in loader:
            dist.all_reduce(x)  # here
        """,
    "what a step of Ignite has reduced": """
        from ignite.engine import Engine, Events
        def step(engine, batch):
            return idist.all_reduce(train_on(batch)) / idist.get_world_size()
        trainer = Engine(step)
        @trainer.on(Events.ITERATION_COMPLETED)
        def tell(engine):
            if engine.state.output > 2:
                evaluator.run(loader)  # here
        """,
    "events of Ignite that are counted": """
        from ignite.engine import Events
        @trainer.on(Events.ITERATION_COMPLETED(event_filter=lambda engine, event: event % 50 == 0 or event < 10))
        def tell(engine):
            idist.all_reduce(1.0)  # here
        """,
    "a metric of all ranks": """
        from ignite.engine import Events
        @trainer.on(Events.EPOCH_COMPLETED)
        def tell(engine):
            if evaluator.state.metrics["accuracy"] > 0.9:
                idist.barrier()  # here
        """,
}


def written(tmp_path: Path, text: str) -> tuple[str, int]:
    """Write a script, and return its path and the line that is marked."""
    path = tmp_path / "train.py"
    path.write_text(dedent(text), encoding="utf-8")
    return str(path), next(at for at, each in enumerate(dedent(text).splitlines(), 1) if "# here" in each)


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in DECIDED.items()])
def test_a_test_is_known_that_a_batch_decides(tmp_path: Path, text: str) -> None:
    """Through variables, parameters, early ways out, and what a framework hands over."""
    assert batch_condition(*written(tmp_path, text))


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOT_DECIDED.items()])
def test_a_test_that_all_ranks_answer_alike_is_none(tmp_path: Path, text: str) -> None:
    """Counters, options, what was exchanged; a condition on the rank is another matter."""
    assert batch_condition(*written(tmp_path, text)) == ""


def asked(*events: Event) -> list[tuple[str, str, int | None]]:
    """Show events to all checks: slug, message and line of what they find in the last one."""
    dispatcher = Dispatcher(CHECKS)
    found = [list(dispatcher.see(each)) for each in events][-1]
    return [(each.check.slug, each.finding.message, each.finding.place.line) for each in found]


def call(site: Site, number: int) -> Communication:
    """Return a call in the default group."""
    return Communication(number, float(number), "all_gather", "0", "[1]", site)


def waits(rank: int, operation: str, site: Site, forwards: int, *recent: Communication) -> Position:
    """Return a rank that waits at a line."""
    return Position(
        rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=site, operation=operation, stack=(site,),
        forwards=forwards, recent=recent,
    )  # fmt: skip


class TestBehindABatch:
    """One rank made a call, another one has gone on without it."""

    def test_the_rank_that_went_on_is_in_a_later_forward(self, tmp_path: Path) -> None:
        """The call is named, and the test; not the forward in which the other rank waits."""
        file, line = written(tmp_path, DECIDED["an element of a mask"])
        site = Site(file, line, "<module>")
        one = waits(1, "all_gather", site, 4, call(site, 7))
        other = waits(0, "forward of DistributedDataParallel", Site(file, 3, "<module>"), 5)

        [(slug, message, at)] = asked(Stalled(pid=0, time=2.0, ranks=(other, one), world_size=2))

        assert (slug, at) == ("collective-behind-own-batch", line)
        assert "accelerator.gather" in message
        assert "under `if wrong[0]`" in message

    def test_a_backward_that_is_skipped(self, tmp_path: Path) -> None:
        """Here the other rank's batch decides."""
        file, line = written(tmp_path, DECIDED["a loss that is not finite is skipped"])
        one = waits(0, "backward", Site(file, line, "<module>"), 4)
        other = waits(1, "broadcast", Site(file, 3, "<module>"), 5)

        [(slug, _, at)] = asked(Stalled(pid=0, time=2.0, ranks=(one, other), world_size=2))

        assert (slug, at) == ("collective-behind-own-batch", line)

    def test_a_backward_that_was_skipped_in_the_last_pass(self, tmp_path: Path) -> None:
        """The rank has made as many forwards, and is at the head of the loop again."""
        file, line = written(tmp_path, DECIDED["a loss that is not finite is skipped"])
        one = waits(0, "backward", Site(file, line, "<module>"), 4)
        other = waits(1, "broadcast", Site(file, 2, "<module>"), 4)

        assert [slug for slug, *_ in asked(Stalled(pid=0, time=2.0, ranks=(one, other), world_size=2))] == [
            "collective-behind-own-batch"
        ]

    def test_a_backward_that_was_skipped_in_a_loop_of_the_frameworks(self, tmp_path: Path) -> None:
        """The rank has been given a batch more, after no more forwards; not where it has as many batches."""
        file, line = written(tmp_path, STEP)
        one = waits(0, "backward", Site(file, line, "training_step"), 4)
        other = waits(1, "all_gather", Site(file, line + 3, "<module>"), 4)
        further = replace(other, batches=one.batches + 1)

        found = asked(Stalled(pid=0, time=2.0, ranks=(one, further), world_size=2))
        assert [slug for slug, *_ in found] == ["collective-behind-own-batch"]
        found = asked(Stalled(pid=0, time=2.0, ranks=(one, other), world_size=2))
        assert "collective-behind-own-batch" not in [slug for slug, *_ in found]

    def test_the_other_rank_is_not_further(self, tmp_path: Path) -> None:
        """It can be on its way: nothing is said of the batch."""
        file, line = written(tmp_path, DECIDED["an element of a mask"])
        site = Site(file, line, "<module>")
        one = waits(1, "all_gather", site, 4, call(site, 7))
        other = waits(0, "backward", Site(file, 3, "<module>"), 4)

        found = asked(Stalled(pid=0, time=2.0, ranks=(other, one), world_size=2))

        assert "collective-behind-own-batch" not in [slug for slug, *_ in found]

    def test_a_rank_is_gone(self, tmp_path: Path) -> None:
        """As gloo ends one that gets more bytes than it has room for."""
        file, line = written(tmp_path, DECIDED["an element of a mask"])
        site = Site(file, line, "<module>")
        lost = Failed(pid=1, time=1.0, rank=0, error="RuntimeError", text="RuntimeError: Connection closed by peer")
        progress = (Progress(rank=0, forwards=5, recent=()), Progress(rank=1, forwards=4, recent=(call(site, 7),)))

        event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), gone=(1,), progress=progress)

        assert [slug for slug, *_ in asked(event)] == ["collective-behind-own-batch"]


STEP = """
class Careful(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        if (inputs["x"] > 0).sum() < 4:
            return torch.tensor(0.0)
        return super().training_step(model, inputs)  # here

trainer = Careful(model=model)
trainer.train()
"""
LOGS = """
class Net(LightningModule):
    def on_validation_epoch_end(self):
        if self.trainer.is_global_zero:
            self.log("score", 1.0, sync_dist=True)  # here
        self.log("loss", 1.0, sync_dist=True)

trainer.fit(Net())
"""


@pytest.mark.parametrize(("names", "found"), [(("score", "loss"), True), (("loss",), False)])
def test_a_metric_of_one_rank_is_named_where_lightning_reduces_it_later(
    tmp_path: Path, names: tuple[str, ...], *, found: bool
) -> None:
    """The line that logs it, and not that of trainer.fit; none where all ranks have logged the same."""
    file, line = written(tmp_path, LOGS)
    fit = Site(file, line + 3, "<module>")
    lines = {"score": line, "loss": line + 1}
    logged = [
        MetricSynced(
            pid=rank + 1, time=1.0, rank=rank, name=name, site=Site(file, lines[name], "on_validation_epoch_end")
        )
        for rank, those in ((0, names), (1, ("loss",)))
        for name in those
    ]
    ranks = (waits(0, "all_reduce", fit, 4), waits(1, "barrier", fit, 4))
    joined = [Joined(pid=rank + 1, time=0.5, rank=rank, world_size=2, backend="gloo") for rank in (0, 1)]

    said = asked(*joined, *logged, Stalled(pid=1, time=2.0, ranks=ranks, world_size=2))

    named = [(slug, at) for slug, _, at in said if slug == "ranks-log-different-metrics"]
    assert named == ([("ranks-log-different-metrics", line)] if found else [])


@pytest.mark.parametrize(
    ("said", "names", "found"),
    [
        (
            "`ModelCheckpoint(monitor='score')` could not find the monitored key in the returned metrics: []",
            ("score",),
            1,
        ),
        ("Early stopping conditioned on metric `score` which is not available.", ("score",), 1),
        ("Early stopping conditioned on metric `score` which is not available.", (), 0),
        ("No `predict_dataloader()` method defined to run `Trainer.predict`.", ("score",), 0),
    ],
)
def test_a_monitored_metric_that_one_rank_alone_logs(
    tmp_path: Path, said: str, names: tuple[str, ...], *, found: int
) -> None:
    """The rank that lacks it fails first, by its callback; the line that logs it on the other one is the cause."""
    file, line = written(tmp_path, LOGS)
    logged = [MetricSynced(pid=1, time=1.0, rank=0, name=name, site=Site(file, line, "on_end")) for name in names]
    joined = [Joined(pid=rank + 1, time=0.5, rank=rank, world_size=2, backend="gloo") for rank in (0, 1)]
    error = "MisconfigurationException"
    first = Failed(pid=2, time=2.0, rank=1, error=error, text=f"{error}: {said}")
    lost = Failed(pid=1, time=3.0, rank=0, error="RuntimeError", text="RuntimeError: Connection closed by peer")

    slugs = [slug for slug, *_ in asked(*joined, *logged, PeerLost(pid=1, time=4.0, first=first, others=(lost,)))]

    assert slugs == (["ranks-log-different-metrics"] if found else ["one-rank-failed"])


@pytest.mark.parametrize(
    ("given", "step", "found"),
    [
        ("[model]", "optimizer.step()", True),
        ("[model]", "optimizer.step(); optimizer.zero_grad()", True),
        ("[model, optimizer]", "optimizer.step()", False),
        ("joinables", "optimizer.step()", False),
        ("[model]", "loss(model(x)).backward(); optimizer.step()", False),
    ],
)
def test_a_sharded_optimizer_that_join_was_not_given(tmp_path: Path, given: str, step: str, *, found: bool) -> None:
    """Its step hands round what each rank has updated, and nobody answers on a rank without batches."""
    text = f"""
        with Join({given}):
            for x, y in batches:
                loss(model(x)).backward()
                {step}  # here
        """
    file, line = written(tmp_path, text)
    head, at = Site(file, 2, "<module>"), Site(file, line, "<module>")
    one = waits(0, "all_reduce", head, 6, Communication(39, 1.0, "all_reduce", "0", "[1]", head))
    other = waits(1, "broadcast", at, 8, Communication(39, 1.0, "broadcast", "0", "[8]", at))

    said = asked(Stalled(pid=1, time=2.0, ranks=(one, other), world_size=2))

    named = [(message, place) for slug, message, place in said if slug == "collective-within-join"]
    assert bool(named) is found
    if found:
        assert "in the step of optimizer, which Join was not given" in named[0][0]
        assert named[0][1] == line


@pytest.mark.parametrize(
    ("code", "fix"),
    [("optimizer.consolidate_state_dict(to=rank)", "consolidate_state_dict(to=0)"), ("send(rank)", "dist.broadcast(")],
)
def test_each_rank_names_itself(tmp_path: Path, code: str, fix: str) -> None:
    """The fix is in the words of the line: of a sharded optimizer's state that is brought together, its own."""
    file, line = written(tmp_path, f"{code}  # here")
    site = Site(file, line, "<module>")
    ranks = [
        waits(rank, "broadcast", site, 4, Communication(7, 1.0, "broadcast", "0", f"[1], root {1 - rank}", site))
        for rank in (0, 1)
    ]
    dispatcher = Dispatcher(CHECKS)

    [found] = dispatcher.see(Stalled(pid=0, time=2.0, ranks=tuple(ranks), world_size=2))

    assert found.check.slug == "collective-roots-differ"
    assert found.finding.fix is not None
    assert fix in found.finding.fix.diff


def stepped(rank: int, number: int, factor: float) -> StepFingerprinted:
    """Return a step before which a rank has multiplied its part of a gradient."""
    left = (1.0 + rank, -2.0, 0.5, 3.0, 4.0)
    part = ShardedGradient("weight", left, tuple(factor * each for each in left))
    return StepFingerprinted(
        pid=rank, time=float(number), rank=rank, optimizer=0, number=number, local=(), given=(), values=(), added=(),
        exchanges=(), sent=(), options=(), evaluating=(), subgroups=False, hooks=(), parts=(part,),
    )  # fmt: skip


@pytest.mark.parametrize(("factors", "found"), [((0.3, 0.5), 1), ((0.3, 0.3), 0), ((1.0, 1.0), 0)])
def test_parts_that_are_scaled_by_different_numbers(factors: tuple[float, float], found: int) -> None:
    """Once two steps agree, and once only; clipping by one norm of all is the same number on all ranks."""
    dispatcher = Dispatcher(CHECKS)
    events: list[Event] = [Joined(pid=rank, time=0.0, rank=rank, world_size=2, backend="gloo") for rank in (0, 1)]
    events += [stepped(rank, number, factors[rank]) for number in (1, 2, 3) for rank in (0, 1)]

    said = [each.check.slug for event in events for each in dispatcher.see(event)]

    assert said.count("shards-scaled-apart") == found
