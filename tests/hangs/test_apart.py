"""Where a rank is gone: calls whose dtypes or splits differ, and calls that one rank has left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ddpdoctor.checks.collectives.hangs._keys import of_key
from ddpdoctor.checks.collectives.hangs.calls._compared import first_mismatch, unlike_passes
from ddpdoctor.registry import load_checks
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import (
    Communication,
    Doing,
    EpochEnded,
    EpochStarted,
    Failed,
    Joined,
    PeerLost,
    Position,
    Progress,
    Site,
    Stalled,
)
from ddpdoctor.watch.rank.hooks import communications
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from helpers import Script

CHECKS = load_checks()
DEFAULT_GROUP = "0"
SPLITS = "[4], takes [{}], gives [{}]"


def call(shapes: str, number: int = 1, operation: str = "all_reduce", site: Site | None = None) -> Communication:
    """Return a call in the default group."""
    return Communication(number, 1.0, operation, DEFAULT_GROUP, shapes, site or Site("/home/user/train.py", 7, "main"))


def progress(*recent: tuple[Communication, ...]) -> tuple[Progress, ...]:
    """Return how far the ranks came that have made these calls."""
    return tuple(Progress(rank=rank, forwards=9, recent=each) for rank, each in enumerate(recent))


@pytest.mark.parametrize(
    ("ours", "theirs", "differ"),
    [("[]", "[] int64", True), ("[] int64", "[] int64", False), ("[3] bytes", "[3] bytes", False)],
)
def test_tensors_of_one_shape_and_two_dtypes_do_not_match(ours: str, theirs: str, *, differ: bool) -> None:
    """Gloo ends the rank that gets more bytes than it has room for."""
    assert (first_mismatch(progress((call(ours),), (call(theirs),))) is not None) is differ


@pytest.mark.parametrize(
    ("zero", "one", "said"),
    [
        (("1, 3", "1, 3"), ("2, 2", "2, 2"), "rank 0 gives rank 1 3 rows, and rank 1 expects 2 of it"),
        (("1, 3", "1, 2"), ("2, 2", "3, 2"), ""),  # what each gives the other, it takes
    ],
)
def test_splits_are_compared_by_who_gives_what_to_whom(zero: tuple[str, str], one: tuple[str, str], said: str) -> None:
    """Ranks rightly give each other different numbers of rows."""
    calls = [(call(SPLITS.format(*each), operation="all_to_all_single"),) for each in (zero, one)]
    lost = Failed(pid=1, time=2.0, rank=0, error="RuntimeError", text="RuntimeError: Connection closed by peer")
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), gone=(1,), progress=progress(*calls))
    messages = [each.finding.message for each in Dispatcher(CHECKS).see(event)]

    assert any(said in each for each in messages) if said else all(" rows" not in each for each in messages)


def test_what_a_rank_gives_is_told_with_its_dtype() -> None:
    """What nearly all have is left out; split sizes are told where both sides name them."""
    given = SimpleNamespace(shape=(2, 3), dtype="torch.float32")
    other = SimpleNamespace(shape=(2,), dtype="torch.int64")

    assert communications._shapes([given, other]) == "[2, 3], [2] int64"
    assert communications._splits((given, given, [1, 3], [2, 2])) == ", takes [1, 3], gives [2, 2]"
    assert communications._splits((given, given, [], [])) == ""


SOURCE = """\
def validate(model, values):
    if len(values) == 0:
        return 0.0
    dist.all_reduce(total)

def train():
    for epoch in range(epochs):
        for batch in loader:
            loss = model(batch)
            if enough():
                log(loss)
                dist.all_reduce(loss)
        if better():
            dist.all_reduce(best)
    dist.all_reduce(count)
"""
VALIDATED, FORWARD, LOGGED, EPOCH, COUNTED = 4, 9, 12, 14, 15  # lines


@pytest.mark.parametrize(
    ("line", "function", "alike", "said"),
    [
        (LOGGED, "train", False, "has left that out"),
        (EPOCH, "train", True, "has left that out"),
        (EPOCH, "train", False, "had gone on to"),  # it has broken the loop of its batches off
        (COUNTED, "train", True, "had gone on to"),  # it has made fewer epochs
        (COUNTED, "train", False, "had gone on to"),
        (VALIDATED, "validate", True, "had gone on to"),
    ],
    ids=["in the loop", "after as many batches", "after fewer", "fewer epochs", "behind the loop", "who knows"],
)
def test_a_call_that_one_rank_left_out_is_told_as_that(
    script: Script, line: int, function: str, said: str, *, alike: bool
) -> None:
    """Else the other one may have left a loop early; where nothing decides, both are told."""
    path = script(SOURCE)
    ours = call("[1]", 5, site=Site(path, line, function))
    ranks = (
        Progress(rank=0, forwards=16, recent=(ours,)),
        Progress(rank=1, forwards=17, recent=(call("[1]", 4),)),
    )
    lost = Failed(
        pid=2, time=2.0, rank=1, error="RuntimeError", text="Connection closed", site=Site(path, FORWARD, "train")
    )
    found = Training()
    for rank in (0, 1):
        found.add(Joined(pid=rank + 1, time=0.0, rank=rank, world_size=2, backend="gloo"))
        found.add(
            EpochStarted(
                pid=rank + 1, time=0.5, rank=rank, loader=0, number=0, training=True, dataset="", length=32, batches=16,
                batch_size=2, sampler=None, workers=0, drop_last=False, iterable=False, given=0, owning_library="",
                subgroups=False,
            )
        )  # fmt: skip
        found.add(EpochEnded(pid=rank + 1, time=1.0, rank=rank, loader=0, number=0, batches=16, complete=alike))
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), gone=(0,), progress=ranks)
    [told] = [each.finding for each in Dispatcher(CHECKS).see_of(found, event) if each.check.slug == "ranks-diverge"]

    assert said in told.message
    assert (told.ambiguity is not None) is (function == "validate")
    seen = " ".join(each.seen for each in told.evidence)
    assert ("not len(values) == 0" in seen) is (function == "validate")


CONTINUES = """\
def train():
    for i in range(steps):
        batch = rows[i]
        if {test}:
            continue
        loss = model(batch)
        if i % 10 == 9:
            dist.all_reduce(loss)
"""


@pytest.mark.parametrize(
    ("test", "said"),
    [("batch.isnan().any()", "`continue` at line 5, under `if batch.isnan().any()`"), ("i < 3", "has left that out")],
)
def test_a_continue_can_leave_a_forward_out(script: Script, test: str, said: str) -> None:
    """Before both lines; then nobody need have left the call out. A test of the loop's number is alike on all ranks."""
    path = script(CONTINUES.format(test=test))
    ours = call("[1]", 5, site=Site(path, 8, "train"))
    lost = Failed(pid=2, time=2.0, rank=1, error="RuntimeError", text="Connection closed", site=Site(path, 6, "train"))
    ranks = (
        Progress(rank=0, forwards=9, recent=(ours,)),
        Progress(rank=1, forwards=10, recent=(call("[1]", 4),)),
    )
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), gone=(0,), progress=ranks)
    found = Training()
    for rank in (0, 1):
        found.add(Joined(pid=rank + 1, time=0.0, rank=rank, world_size=2, backend="gloo"))
    [told] = [each.finding for each in Dispatcher(CHECKS).see_of(found, event) if each.check.slug == "ranks-diverge"]

    assert said in told.message


HELPED = """\
def evaluate(batches):
    {early}
    dist.all_reduce(accuracy)

def train():
    for epoch in range(4):
        for _ in {steps}:
            {skip}
            loss = model(batch)
        try:
            print(evaluate(held_out))
        except Exception as exc:
            print(exc)
"""


@pytest.mark.parametrize(
    ("early", "steps", "skip", "said"),
    [
        (
            "hits = sum(batches)",
            "range(5)",
            "pass",
            "Exception",
        ),
        ("if not batches: return", "range(5)", "pass", "has left that out"),
        ("hits = sum(batches)", "range(own)", "pass", "had gone on to"),
        ("hits = sum(batches)", "range(5)", "if bad(batch): continue", "had gone on to"),
    ],
    ids=["an error", "an early return", "own passes", "a forward less"],
)
def test_a_function_that_one_rank_has_not_come_through(
    script: Script, early: str, steps: str, skip: str, said: str
) -> None:
    """It is called once in the loop that the other rank is in, and its batches are as many on all ranks."""
    path = script(HELPED.format(early=early, steps=steps, skip=skip))
    ours = call("[1]", 5, site=Site(path, 3, "evaluate"))
    lost = Failed(pid=2, time=2.0, rank=1, error="RuntimeError", text="Connection closed", site=Site(path, 9, "train"))
    ranks = (
        Progress(rank=0, forwards=15, recent=(ours,)),
        Progress(rank=1, forwards=16, recent=(call("[1]", 4),)),
    )
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), gone=(0,), progress=ranks)
    found = Training()
    for rank in (0, 1):
        found.add(Joined(pid=rank + 1, time=0.0, rank=rank, world_size=2, backend="gloo"))
    [told] = [each.finding for each in Dispatcher(CHECKS).see_of(found, event) if each.check.slug == "ranks-diverge"]

    assert said in told.message
    assert (told.ambiguity is None) is ("range(5)" in steps and skip == "pass")


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((21, 19), [("uneven-inputs", "rank 1 had 19 batches in a pass in which others had up to 21")]),
        ((20, 20), [("rank-left-early", "rank 1 has come to the end of the script")]),
    ],
)
def test_a_rank_that_ended_first_is_told_with_the_batches_that_it_had(
    counts: tuple[int, int], said: list[tuple[str, str]]
) -> None:
    """It has called nothing that the other rank would have been behind; loaders of evaluations are none of it."""
    found = Training()
    for rank, batches in enumerate(counts):
        found.add(Joined(pid=rank + 1, time=0.0, rank=rank, world_size=2, backend="gloo"))
        passes = ((0, batches, True), (1, 3 + rank, False))
        for loader, number, trained in passes[: 1 + rank]:
            found.add(
                EpochEnded(
                    pid=rank + 1, time=1.0, rank=rank, loader=loader, number=0, batches=number, complete=True,
                    trained=trained,
                )
            )  # fmt: skip
    lost = Failed(
        pid=1, time=2.0, rank=0, error="RuntimeError", text="Connection closed", site=Site("/home/user/t.py", 9, "main")
    )
    ranks = (Progress(rank=0, forwards=28, recent=()), Progress(rank=1, forwards=26, recent=(), ended=True))
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), gone=(), ended=(1,), progress=ranks)
    findings = list(Dispatcher(CHECKS).see_of(found, event))
    told = [(each.check.slug, each.finding.message) for each in findings]

    assert [(slug, message[: len(start)]) for (slug, message), (_, start) in zip(told, said, strict=True)] == said
    assert "Join([model])" in findings[0].finding.fix.diff  # rank 1 has begun fewer forwards
    assert counts != (20, 20) or "28, as rank 0 has" in {each.expected for each in findings[0].finding.evidence}


@pytest.mark.parametrize(("steps", "said"), [("range(5)", "has left that out"), ("range(own)", "has left the loop")])
def test_a_function_that_one_rank_has_left_out_in_a_hang(script: Script, steps: str, said: str) -> None:
    """Both ranks live and wait: the one in the loop is a forward further on."""
    path = script(HELPED.format(early="if not batches: return", steps=steps, skip="pass"))
    judge = Dispatcher(CHECKS)
    ranks = []
    for rank, (line, function, operation) in enumerate(((3, "evaluate", "all_reduce"), (9, "train", "backward"))):
        list(judge.see(Joined(pid=rank + 1, time=0.0, rank=rank, world_size=2, backend="gloo")))
        site = Site(path, line, function)
        stack = (site, Site(path, 11, "train")) if function == "evaluate" else (site,)
        recent = (call("[1]", 5, operation, site),) if rank == 0 else (call("[1]", 4),)
        position = Position(
            rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=40, site=site, operation=operation, recent=recent,
            forwards=15 + rank, stack=(*stack, Site(path, 15, "<module>")),
        )  # fmt: skip
        ranks.append(position)
    [told] = judge.see(Stalled(pid=0, time=20.0, ranks=tuple(ranks), world_size=2))

    assert told.check.slug == "ranks-diverge"
    assert said in told.finding.message


@pytest.mark.parametrize(("own", "training", "told"), [(0, True, {0: 5, 1: 0}), (0, False, {}), (1, True, {})])
def test_a_pass_that_gave_one_rank_nothing(own: int, told: dict[int, int], *, training: bool) -> None:
    """The other one is in it still: how many batches it is to have, its loader says. Of evaluations nothing is said."""
    found = Training()
    for rank, batches in enumerate((5, own)):
        found.add(
            EpochStarted(
                pid=rank + 1, time=0.5, rank=rank, loader=0, number=0, training=training, dataset="", length=20,
                batches=batches, batch_size=4, sampler=None, workers=0, drop_last=False, iterable=False, given=0,
                owning_library="", subgroups=False,
            )
        )  # fmt: skip
    found.add(EpochEnded(pid=2, time=1.0, rank=1, loader=0, number=0, batches=own, complete=True, trained=own > 0))
    assert unlike_passes(found) == told


KEYS = """\
if rank == 0:
    store.set("dataset_ready", "1")
    store.set("done", "1")
else:
    store.wait(["data_ready"])
    store.get("done")
    store.get(name)
store.set(f"ready{rank}", "1")
store.wait(["ready0", "ready2"])
store.wait(["data_ready"])
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (5, ": no line of train.py sets the key 'data_ready'; it sets 'dataset_ready' (line 2), 'done' (line 3)"),
        (6, ": the key 'done', which line 3 sets, has not been set"),
        (7, ""),
        (9, ": of 'ready0', 'ready2', which line 8 sets as f'ready{rank}', one has not been set"),
        (10, ": no line of train.py sets the key 'data_ready'; it sets 'dataset_ready' (line 2), 'done' (line 3)"),
    ],
)
def test_the_key_that_a_rank_waits_for_is_named(script: Script, line: int, said: str) -> None:
    """As the script writes it; a name that is computed is not guessed."""
    path = script(KEYS)

    assert of_key(Site(path, line, "<module>")).replace(path.rpartition("/")[2], "train.py") == said


def test_how_a_key_is_made_that_a_rank_waits_for(script: Script) -> None:
    """Where a line sets one of the same name: what it is made of can differ between the ranks."""
    path = script('key = f"{name}/folder"\nstore.set(key, "1")\nstore.get(key)\nstore.get(f"{other}/folder")\n')

    assert of_key(Site(path, 3, "<module>")) == (
        ": the key f'{name}/folder' of line 1, which line 2 sets on another rank, "
        "has not been set as this rank has made it"
    )
    assert of_key(Site(path, 4, "<module>")) == ""


@pytest.mark.parametrize(
    ("room", "sent", "told"),
    [("[8, 8]", "[8, 16]", True), ("[8, 16]", "[8, 8]", False), ("[8, 8] int64", "[8, 16]", False)],
    ids=["too long", "shorter", "another dtype"],
)
def test_a_message_that_is_longer_than_its_buffer_ends_the_rank_that_receives_it(
    room: str, sent: str, *, told: bool
) -> None:
    """Gloo aborts it; a message that leaves room is let through."""
    calls = (call(f"{sent} to 1", operation="send"),), (call(f"{room} from 0", operation="recv"),)
    lost = Failed(pid=1, time=2.0, rank=0, error="RuntimeError", text="RuntimeError: Connection closed by peer")
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), gone=(1,), progress=progress(*calls))
    slugs = [each.check.slug for each in Dispatcher(CHECKS).see(event)]

    assert slugs == (["collective-shape-mismatch"] if told else ["rank-died-or-stuck"])


HELPERS = """\
{decorator}
def longest(own):
    dist.all_reduce(own)

def collate(rows):
    {before}
    longest(rows)

def step(model, batch):
    {loop}
    model(batch)

def train():
    for batch in rows:
        collate(batch)
        step(model, batch)
"""


@pytest.mark.parametrize(
    ("decorator", "before", "loop", "said"),
    [
        ("@lru_cache(maxsize=None)", "rows += 1", "batch += 1", "longest() keeps its results, by `@lru_cache` at"),
        ("@functools.cache", "rows += 1", "batch += 1", "by `@functools.cache`"),
        ("@timed", "if rows.isnan().any():", "batch += 1", "under `if rows.isnan().any()` at"),
        ("@timed", "rows += 1", "batch += 1", "has left that out"),
        ("@lru_cache", "rows += 1", "for part in batch:", "had gone on to"),  # it can be behind in that loop
    ],
    ids=["kept", "kept by cache", "under a test", "unknown why", "a loop within"],
)
def test_a_call_in_a_helper_is_left_out_in_the_loop_that_calls_it(
    script: Script, decorator: str, before: str, loop: str, said: str
) -> None:
    """The other rank is in another helper of the same loop, as its stack tells."""
    indent = ["    " if each.endswith(":") else "" for each in (before, loop)]
    code = HELPERS.format(decorator=decorator, before=before, loop=loop)
    code = code.replace("    longest(rows)", f"    {indent[0]}longest(rows)")
    path = script(code.replace("    model(batch)", f"    {indent[1]}model(batch)"))
    ranks = (
        Progress(rank=0, forwards=16, recent=(call("[1]", 5, site=Site(path, 3, "longest")),)),
        Progress(rank=1, forwards=17, recent=(call("[1]", 4),)),
    )
    stack = Site(path, 11, "step"), Site(path, 16, "train")
    lost = Failed(pid=2, time=2.0, rank=1, error="RuntimeError", text="Connection closed", site=stack[0])
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), gone=(0,), progress=ranks, stack=stack)
    [told] = [
        each.finding for each in Dispatcher(CHECKS).see_of(Training(), event) if each.check.slug == "ranks-diverge"
    ]

    assert said in told.message


YIELDS = """\
def batches(rows):
    for row in rows:
        yield row
    dist.all_reduce(meter)

def train():
    for epoch in range(9):
        for batch in batches(rows):
            loss = model(batch)
            if loss < enough:
                {leave}
"""


@pytest.mark.parametrize("leave", ["break", "log(loss)"])
def test_a_call_behind_what_a_generator_yields_is_missed_by_who_leaves_its_loop(script: Script, leave: str) -> None:
    """The way out of the loop is named; a loop that has none is not what is told."""
    path = script(YIELDS.format(leave=leave))
    ranks = (
        Progress(rank=0, forwards=16, recent=(call("[1]", 5, site=Site(path, 4, "batches")),)),
        Progress(rank=1, forwards=17, recent=(call("[1]", 4),)),
    )
    stack = (Site(path, 9, "train"),)
    lost = Failed(pid=2, time=2.0, rank=1, error="RuntimeError", text="Connection closed", site=stack[0])
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), gone=(0,), progress=ranks, stack=stack)
    [told] = [
        each.finding for each in Dispatcher(CHECKS).see_of(Training(), event) if each.check.slug == "ranks-diverge"
    ]

    named = "rank 1 has left the loop through batches(), at train.py:8 by `break` at line 11, under `if loss < enough`"
    assert (named in told.message) is (leave == "break")


def test_a_key_that_two_lines_write_otherwise(script: Script) -> None:
    """What stands between the variables tells; a key that is made by a function is not guessed."""
    path = script('store.set(f"{what}-{rank}", "1")\nstore.wait([f"{what}_{rank}"])\nstore.wait([f"{what}-{other}"])\n')

    assert "no line of" in of_key(Site(path, 2, "<module>"))
    assert "it sets f'{what}-{rank}' (line 1)" in of_key(Site(path, 2, "<module>"))
    assert of_key(Site(path, 3, "<module>")) == ""
