"""Hangs whose cause is a collective that some ranks skip, also where a caller is guarded, and messages nobody gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.checks.collectives.hangs.handed._decorated import without_decorator
from ddpdoctor.checks.collectives.skipped.rank0_only_collective import where_it_ended_a_rank
from ddpdoctor.host.process.connections import Peer
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import (
    Communication,
    Doing,
    Failed,
    Joined,
    Joining,
    PeerLost,
    Position,
    Progress,
    Sibling,
    Site,
    Stalled,
)
from ddpdoctor.watch.training import Training

TRAIN = """\
rank = dist.get_rank()
def save(model):
    if rank == 0:
        dist.barrier()
    dist.barrier()

def validate(model):
    dist.all_reduce(loss)

if rank >= 0:
    for epoch in range(3):
        save(model)
        if rank == 0:
            validate(model)
        dist.broadcast(x, 0)

def early():
    if rank == 0:
        dist.broadcast(x, 0)
        return
    dist.broadcast(x, 0)
"""
GUARDED, OPEN, WITHIN, SAVE, CALL, OTHER, EARLY, LATE = 4, 5, 8, 12, 14, 15, 19, 21


TURNED = """\
def stats():
    dist.all_reduce(x, group=data)
def loss():
    dist.all_reduce(x, group=model)
if rank == 0:
    stats(); loss()
    dist.barrier()
else:
    loss()
    stats()
if rank == 0:
    stats()
else:
    print("no stats")
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    """Return the path of a script with such collectives."""
    path = tmp_path / "train.py"
    path.write_text(TRAIN, encoding="utf-8")
    return str(path)


def calls(file: str, operation: str, *lines: int) -> tuple[Communication, ...]:
    """Return the calls of a rank, one after another, in the default group."""
    return tuple(
        Communication(number, float(number), operation, "0", "[1]", Site(file, line, "f"))
        for number, line in enumerate(lines, 1)
    )


def waits(file: str, rank: int, operation: str, *lines: int, recent: tuple[Communication, ...] = ()) -> Position:
    """Return a rank that waits; ``lines`` are its stack, innermost first."""
    stack = tuple(Site(file, line, "f") for line in lines)
    return Position(
        rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=stack[0], operation=operation, stack=stack,
        recent=recent,
    )  # fmt: skip


def asked(*ranks: Position, siblings: tuple[Sibling, ...] = ()) -> list[tuple[str, str, int | None]]:
    """Ask all checks about a hang of these ranks: slug, message and line of what they find."""
    event = Stalled(pid=0, time=2.0, ranks=ranks, world_size=2, siblings=siblings)
    found = Dispatcher(CHECKS).see(event)
    return [(each.check.slug, each.finding.message, each.finding.place.line) for each in found]


def test_the_call_that_was_taken_for_another_one_is_named(script: str) -> None:
    """Rank 0's barrier under the condition met rank 1's next barrier: the line of the first, not of what waits now."""
    zero = waits(script, 0, "barrier", OPEN, SAVE, recent=calls(script, "barrier", GUARDED, OPEN))
    one = waits(script, 1, "broadcast", OTHER, recent=calls(script, "barrier", OPEN))

    [(slug, message, line)] = asked(zero, one)

    assert (slug, line) == ("rank0-only-collective", GUARDED)
    assert "met the barrier of rank 1 at train.py:5" in message


@pytest.mark.parametrize(
    ("call", "named"), [("src=1 - rank", ["src, which is `1 - rank` there"]), ("src=0", []), ("group=pair", [])]
)
def test_a_root_that_is_no_number_is_named_among_the_causes(tmp_path: Path, call: str, named: list[str]) -> None:
    """From outside nobody knows which rank each names; the line says that they need not name the same one."""
    path = tmp_path / "train.py"
    path.write_text(f"import torch.distributed as dist\ndist.broadcast(x, {call})\n", encoding="utf-8")
    event = Stalled(
        pid=0, time=2.0, ranks=(waits(str(path), 0, "broadcast", 2), waits(str(path), 1, "broadcast", 2)), world_size=2
    )
    (found,) = Dispatcher(CHECKS).see(event)

    assert found.check.slug == "collective-timeout"
    assert found.finding.ambiguity is not None
    roots = [each for each in found.finding.ambiguity.causes if "different ranks" in each]
    assert [each.removeprefix("the ranks name different ranks for ") for each in roots] == named


@pytest.mark.parametrize("operation", ["recv", "Work.wait of recv"])
def test_a_message_that_one_rank_alone_waits_for(script: str, operation: str) -> None:
    """One rank alone receives, as it is meant to: the other one has to send, and not to receive as well."""
    zero, one = waits(script, 0, operation, GUARDED, SAVE), waits(script, 1, "barrier", OPEN, SAVE)
    [(slug, message, line)] = asked(zero, one)

    assert (slug, line) == ("receive-deadlock", GUARDED)
    assert f"rank 0 waits in {operation} at train.py:4, and no rank sends one: rank 1 waits in barrier" in message


def test_branches_with_the_same_calls_in_another_order(tmp_path: Path) -> None:
    """Nobody has skipped anything: each rank waits in a group that the other one comes to later."""
    path = tmp_path / "train.py"
    path.write_text(TURNED, encoding="utf-8")

    def rank(number: int, inner: int, function: str, outer: int) -> Position:
        stack = (Site(str(path), inner, function), Site(str(path), outer, "<module>"))
        return Position(
            rank=number, pid=number + 1, doing=Doing.WAITING, seconds=9, site=stack[0], operation="all_reduce",
            stack=stack,
        )  # fmt: skip

    [(slug, message, line)] = asked(rank(0, 2, "stats", 6), rank(1, 4, "loss", 9))
    assert (slug, line) == ("collective-order-mismatch", 6)
    assert "the two branches of `if rank == 0` make the same calls in another order" in message
    assert {slug for slug, _, _ in asked(rank(0, 2, "stats", 12), rank(1, 4, "loss", 14))} != {slug}


def test_two_branches_that_belong_together_are_not_taken_for_it(script: str) -> None:
    """Rank 0 leaves a function early after its own call: the calls match."""
    zero = waits(script, 0, "barrier", OPEN, SAVE, recent=calls(script, "broadcast", EARLY))
    one = waits(script, 1, "all_reduce", WITHIN, recent=calls(script, "broadcast", LATE))

    assert all("taken" not in message and "met the" not in message for _, message, _ in asked(zero, one))


def test_a_caller_under_a_condition_is_named(script: str) -> None:
    """The collective itself stands in a function that one rank alone calls; `if rank >= 0` holds both ranks."""
    [(slug, message, line)] = asked(waits(script, 0, "all_reduce", WITHIN, CALL), waits(script, 1, "broadcast", OTHER))

    assert (slug, line) == ("rank0-only-collective", WITHIN)
    assert "under `if rank == 0` at train.py:14" in message


OF_A_METRIC = """class Trainer:
    def validate(self):
        for batch in self.loader:
            self.metric.update(batch)
        return self.metric.compute()

    def fit(self):
        if self.rank == 0:
            print("validation", self.validate())
        dist.barrier()
"""


def test_what_the_caller_calls_is_what_all_ranks_are_to_call(tmp_path: Path) -> None:
    """A metric's compute communicates, in a method that one rank alone calls: that one leaves the test."""
    path = tmp_path / "train.py"
    path.write_text(OF_A_METRIC, encoding="utf-8")
    stack = (Site(str(path), 5, "validate"), Site(str(path), 9, "fit"))
    zero = Position(rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=stack[0], operation="all_gather", stack=stack)
    event = Stalled(pid=0, time=2.0, ranks=(zero, waits(str(path), 1, "barrier", 10)), world_size=2)
    [found] = Dispatcher(CHECKS).see(event)

    assert found.check.slug == "rank0-only-collective"
    assert "waits in self.metric.compute() at train.py:5, in which all_gather is called" in found.finding.message
    assert (
        found.finding.fix.summary == "let all ranks call validate, which communicates, and print or save on rank 0 only"
    )
    assert found.finding.fix.diff == (
        "-if self.rank == 0:\n-    print(self.validate())\n+result = self.validate()\n"
        "+if self.rank == 0:\n+    print(result)"
    )


SHARDED = """def log_step(step, net):
    norms = {n: p.full_tensor().norm() for n, p in net.named_parameters()}
is_main = dist.get_rank() == 0
for step in range(100):
    if step == 99 and is_main:
        log_step(step, net)
dist.barrier()
"""


def test_a_helper_in_which_shards_are_gathered_leaves_the_test_of_the_rank(tmp_path: Path) -> None:
    """Its names are its own: the call of the helper moves, and the test of the step stays around it."""
    path = tmp_path / "train.py"
    path.write_text(SHARDED, encoding="utf-8")
    stack = (Site(str(path), 2, "log_step"), Site(str(path), 6, "<module>"))
    zero = Position(rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=stack[0], operation="redistribute", stack=stack)
    event = Stalled(pid=0, time=2.0, ranks=(zero, waits(str(path), 1, "barrier", 7)), world_size=2)
    [found] = Dispatcher(CHECKS).see(event)

    assert "let all ranks call log_step, in which p.full_tensor() gathers" in found.finding.fix.summary
    assert found.finding.fix.diff == (
        "-if step == 99 and is_main:\n-    log_step(step, net)\n+if step == 99:\n+    log_step(step, net)"
    )


HANDLER = """import ignite.distributed as idist
def update(engine, batch):
    loss(batch).backward()
saver = Checkpoint({"optimizer": sharded}, "out")
if idist.get_rank() == 0:
    trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
trainer.run(loader, max_epochs=3)
"""


def test_a_metric_that_is_printed_is_what_all_ranks_compute(tmp_path: Path) -> None:
    """The print is the first rank's own."""
    path = tmp_path / "train.py"
    path.write_text('if accelerator.is_main_process:\n    print(f"f1 {float(f1.compute()):.3f}")\ndist.barrier()\n')
    event = Stalled(
        pid=0, time=2.0, ranks=(waits(str(path), 0, "all_gather", 2), waits(str(path), 1, "barrier", 3)), world_size=2
    )
    [found] = Dispatcher(CHECKS).see(event)

    assert "waits in f1.compute() at train.py:2, in which all_gather is called" in found.finding.message
    assert "+f1.compute()" in found.finding.fix.diff


def test_a_handler_that_one_rank_alone_has_is_named(tmp_path: Path) -> None:
    """It communicates in the framework's own lines; where all ranks register it, nothing is said of one."""
    path = tmp_path / "train.py"
    path.write_text(HANDLER, encoding="utf-8")
    ranks = waits(str(path), 0, "broadcast", 7), waits(str(path), 1, "backward", 3, 7)
    [(slug, message, line)] = asked(*ranks)

    assert (slug, line) == ("rank0-only-collective", 7)
    assert "in a handler that it alone has, by trainer.add_event_handler at train.py:6" in message
    other = tmp_path / "other.py"
    other.write_text(HANDLER.replace("idist.get_rank() == 0", "EPOCHS"), encoding="utf-8")
    ranks = waits(str(other), 0, "broadcast", 7), waits(str(other), 1, "backward", 3, 7)
    assert "rank0-only-collective" not in {slug for slug, _, _ in asked(*ranks)}


ADDED = """class Samples(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        self.trainer.evaluate()
trainer = Trainer(model=model)
if trainer.args.process_index == 0:
    trainer.add_callback(Samples())
trainer.train()
"""


@pytest.mark.parametrize(("function", "told"), [("on_epoch_end", True), ("train", False)])
def test_a_callback_that_one_rank_alone_has_is_named(tmp_path: Path, function: str, *, told: bool) -> None:
    """It communicates in a line of its own, which the framework comes to, and no method of the user's own is run."""
    path = tmp_path / "train.py"
    path.write_text(ADDED, encoding="utf-8")
    stack = (Site(str(path), 3, function), Site(str(path), 7, "<module>"))
    zero = Position(rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=stack[0], operation="all_gather", stack=stack)
    event = Stalled(pid=0, time=2.0, ranks=(zero, waits(str(path), 1, "broadcast", 7)), world_size=2)
    [found] = Dispatcher(CHECKS).see(event)

    assert ("trainer.add_callback at train.py:6" in found.finding.message) is told


def test_a_condition_that_holds_all_ranks_is_no_cause(script: str) -> None:
    """Both ranks are under `if rank >= 0`."""
    found = asked(waits(script, 0, "barrier", OPEN, SAVE), waits(script, 1, "broadcast", OTHER))

    assert "rank0-only-collective" not in {slug for slug, _, _ in found}


def test_a_forward_of_one_rank_that_lost_the_others_is_named(script: str) -> None:
    """Rank 1 has come to its end; rank 0 is in a forward that it alone makes."""
    site = Site(script, CALL, "f")
    lost = Failed(
        pid=1, time=2.0, rank=0, site=site, error="RuntimeError", text="RuntimeError: Connection closed by peer"
    )
    progress = (Progress(rank=0, forwards=9, recent=()), Progress(rank=1, forwards=8, recent=(), ended=True))
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), ended=(1,), progress=progress, stack=(site,))

    [found] = Dispatcher(CHECKS).see(event)

    assert (found.check.slug, found.finding.place.line) == ("rank0-only-collective", CALL)


def test_the_last_call_of_a_rank_that_is_gone_is_told_where_the_others_are_elsewhere(script: str) -> None:
    """On one host the ranks that are left tell more."""
    recent = calls(script, "all_reduce", WITHIN)
    event = PeerLost(
        pid=0, time=2.0, first=None, others=(), gone=(0,), progress=(Progress(rank=0, forwards=9, recent=recent),)
    )
    said = []
    for size in (1, 2):
        training = Training()
        training.add(Joined(pid=1, time=1.0, rank=0, world_size=size, backend="gloo"))
        said.append([(each.check.slug, each.finding.place.line) for each in Dispatcher(CHECKS).see_of(training, event)])

    assert said == [[], [("rank-died-or-stuck", WITHIN)]]


def test_a_rank_that_a_signal_has_stopped_is_told_on_its_host(script: str) -> None:
    """Nobody else is here, who would wait for it."""
    stopped = Position(
        rank=1, pid=2, doing=Doing.STOPPED, seconds=40, site=Site(script, CALL, "f"), stack=(Site(script, CALL, "f"),)
    )
    [(slug, message, line)] = asked(stopped)

    assert (slug, line) == ("rank-died-or-stuck", CALL)
    assert "the ranks of other hosts wait for it" in message


@pytest.mark.parametrize(
    ("sent", "received", "said"),
    [
        ("[4] to 2", "[4] from 0", "rank 0 sends to rank 2, and the last rank of this job is 1"),
        ("[4] to 1, tag 1", "[4] from 0, tag 2", "rank 0 sends to rank 1 with tag 1 at train.py:4, and rank 1 waits"),
        (
            "[4] to 1",
            "[4] from 0, tag 2",
            "rank 0 sends to rank 1 with tag 0 at train.py:4, and rank 1 waits for tag 2",
        ),
        ("[4] to 1, tag 3", "[4] from 0, tag 3", "rank 0 waits in send at train.py:4, and rank 1 in recv at train.py:"),
        ("[4] to 1", "[4] from -1", "rank 1 waits for a message of rank -1, and the last rank of this job is 1"),
    ],
)
def test_a_message_that_nobody_gets_is_explained(script: str, sent: str, received: str, said: str) -> None:
    """A rank that does not exist, and tags that differ, are told before a deadlock is."""
    ranks = []
    for rank, (operation, shapes, line) in enumerate((("send", sent, GUARDED), ("recv", received, OPEN))):
        last = Communication(1, 1.0, operation, "0", shapes, Site(script, line, "f"))
        ranks.append(waits(script, rank, operation, line, recent=(last,)))

    [(slug, message, _)] = asked(*ranks)

    assert slug == "receive-deadlock"
    assert message.startswith(said)


def test_a_handle_that_is_waited_for_names_the_line_that_began_it(script: str) -> None:
    """The wait and the call are told, and by the call who is at fault."""
    begun = Communication(1, 1.0, "recv", "0", "[4] from 0", Site(script, OPEN, "f"))
    ranks = [waits(script, rank, "Work.wait of recv", GUARDED, recent=(begun,)) for rank in (0, 1)]

    [(slug, message, _)] = asked(*ranks)

    assert slug == "receive-deadlock"
    assert "rank 0 waits in Work.wait of recv from 0 at train.py" in message


def ring(file: str, *, back: bool) -> list[tuple[str, str, int | None]]:
    """Ask about three ranks that have each posted a receive and a send, and wait; ``back``: they receive from the left.

    All of them wait for the receive, which is not what they called last.
    """
    ranks = []
    for rank in range(3):
        right, left = (rank + 1) % 3, (rank - 1) % 3
        recv = Communication(1, 1.0, "recv", "0", f"[6] from {left if back else right}", Site(file, OPEN, "f"))
        send = Communication(2, 2.0, "send", "0", f"[6] to {right}", Site(file, WITHIN, "f"))
        ranks.append(waits(file, rank, "Work.wait of recv", SAVE, recent=(recv, send)))
    event = Stalled(pid=0, time=2.0, ranks=tuple(ranks), world_size=3)
    found = Dispatcher(CHECKS).see(event)
    return [(each.check.slug, each.finding.message, each.finding.place.line) for each in found]


def test_a_ring_in_which_both_sides_name_the_same_neighbour(script: str) -> None:
    """All is posted, and no send is what its receiver waits for; where they do match, that is not said."""
    [(slug, message, line)] = ring(script, back=False)
    assert (slug, line) == ("receive-deadlock", OPEN)
    assert message.startswith("rank 1 receives from rank 2 at train.py:5, and what is sent to it comes from rank 0")
    [(_, message, _)] = ring(script, back=True)
    assert "different ranks" not in message
    assert "rank 0 waits in Work.wait of recv from 2 at train.py:12" in message


def joining(file: str, pid: int, rank: int, size: int, launched: int | None = None) -> Joining:
    """Return a process that enters init_process_group."""
    return Joining(
        pid=pid, time=1.0, rank=rank, world_size=size, backend="gloo", address="h:1", launched=launched,
        site=Site(file, 1, "f"),
    )  # fmt: skip


def test_a_world_that_is_larger_than_what_torchrun_started_is_an_error(script: str) -> None:
    """The numbers of both are named; nothing is open."""
    judge = Dispatcher(CHECKS)
    for rank in range(2):
        list(judge.see(joining(script, rank + 1, rank, size=4, launched=2)))
    ranks = tuple(waits(script, rank, "init_process_group", OPEN) for rank in range(2))

    [found] = judge.see(Stalled(pid=0, time=2.0, ranks=ranks, world_size=4, siblings=(Sibling(9, busy=False),)))

    assert found.check.slug == "missing-ranks-at-init"
    assert found.finding.message.startswith(
        "init_process_group is told 4 ranks at train.py:5, and torchrun has started 2"
    )


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
@pytest.mark.parametrize("alive", [True, False])
def test_two_processes_of_one_rank_are_named(script: str, order: tuple[int, int], *, alive: bool) -> None:
    """Whichever came first; one that is no more is none of them."""
    judge = Dispatcher(CHECKS)
    for pid in order:
        list(judge.see(joining(script, pid, 0, size=2)))
    siblings = (Sibling(2, busy=False),) if alive else (Sibling(7, busy=False),)
    event = Stalled(
        pid=0, time=2.0, ranks=(waits(script, 0, "init_process_group", OPEN),), world_size=2, siblings=siblings
    )

    [found] = judge.see_of(judge.trainings.of(1), event)

    assert ("both join as rank 0" in found.finding.message) is alive


PAIRED = """\
import torch.distributed as dist
def share(x):
    if dist.get_rank() == 0:
        dist.broadcast(x, 0)
    else:
        dist.broadcast(x, 0)
"""
UNPAIRED = """\
import torch.distributed as dist
def train(model):
    for batch in loader:
        model(batch)
        if dist.get_rank() == 0:
            dist.barrier()
"""


def of_two_hosts(position: Position, *peers: Peer) -> list[tuple[str, str, int | None]]:
    """Ask all checks about a hang of which this host sees one rank of two."""
    event = Stalled(pid=0, time=2.0, ranks=(position,), world_size=2, peers=peers)
    dispatcher = Dispatcher(CHECKS)
    found = dispatcher.see(event)
    assert dispatcher.crashes == []
    return [(each.check.slug, each.finding.message, each.finding.place.line) for each in found]


def test_a_call_of_one_rank_is_named_where_the_others_are_on_other_hosts(tmp_path: Path) -> None:
    """The source alone is enough, where no other rank calls it anywhere; where one can be on its way, it is a note."""
    alone, paired = tmp_path / "alone.py", tmp_path / "paired.py"
    alone.write_text(UNPAIRED)
    paired.write_text(PAIRED)

    [(slug, message, line)] = of_two_hosts(waits(str(alone), 0, "barrier", 6))
    assert (slug, line) == ("rank0-only-collective", 6)
    assert "no other rank calls it" in message
    [(slug, message, _)] = of_two_hosts(
        waits(str(paired), 0, "broadcast", 4, recent=calls(str(paired), "broadcast", 4, 4))
    )
    assert slug == "slow-rank"
    assert "rank 1, which this host does not see, has not come" in message


def test_a_host_that_was_never_reached_is_named(script: str) -> None:
    """Where a rank waits in init_process_group; elsewhere a connection in vain is that of another library."""
    tried = Peer("10.0.0.1", "10.0.0.9", 0, 4, "eth0", connecting=41233)

    [(slug, message, line)] = of_two_hosts(waits(script, 0, "init_process_group", OTHER), tried)
    assert (slug, line) == ("peer-connection-lost", OTHER)
    assert "no connection to 10.0.0.9: this host has tried port 41233 there 5 times" in message
    [(slug, message, line)] = of_two_hosts(waits(script, 0, "broadcast", OTHER), tried)
    assert slug == "slow-rank"


def test_connections_that_stand_leave_ports_and_a_limit(script: str) -> None:
    """The address is right where others were made to it."""
    waiting = waits(script, 0, "init_process_group", OTHER)
    for stand, cause in ((0, "resolves to an old address"), (3, "so many connections of one host")):
        tried = Peer("10.0.0.1", "10.0.0.9", 0, 4, "eth0", connecting=41233, stand=stand)
        event = Stalled(pid=0, time=2.0, ranks=(waiting,), world_size=2, peers=(tried,))
        (found,) = Dispatcher(CHECKS).see(event)
        assert found.finding.ambiguity is not None
        causes = " ".join(found.finding.ambiguity.causes)
        assert cause in causes
        assert ("old address" in causes) == (stand == 0)
        assert any("3 other connections to 10.0.0.9" in each.seen for each in found.finding.evidence) == (stand == 3)


def test_gloo_on_loopback_is_named_where_ranks_wait_for_other_hosts(script: str) -> None:
    """Which are told to come to that address; where all is well, who is missing is."""
    waiting = waits(script, 0, "init_process_group", OTHER)
    event = Stalled(pid=0, time=2.0, ranks=(waiting,), world_size=2, on_loopback="GLOO_SOCKET_IFNAME=lo")
    (found,) = Dispatcher(CHECKS).see(event)

    assert found.check.slug == "peer-connection-lost"
    assert "GLOO_SOCKET_IFNAME=lo" in found.finding.message


def test_a_host_that_does_not_answer_is_named(script: str) -> None:
    """By what the kernel has in vain sent again, or by the interface that is down; one that acknowledges is not."""
    waiting = waits(script, 0, "broadcast", OTHER)

    [(slug, message, line)] = of_two_hosts(waiting, Peer("10.0.0.1", "10.0.0.2", 512, 5, "eth0"))
    assert (slug, line) == ("peer-connection-lost", OTHER)
    assert "10.0.0.2 has stopped answering" in message
    [(slug, message, _)] = of_two_hosts(waiting, Peer("10.0.0.1", "10.0.0.2", 512, 5, "eth0", answers=True))
    assert slug == "peer-connection-lost"
    assert "10.0.0.2 answers small packets" in message  # neither down nor out of reach
    assert "has stopped" not in message
    [(slug, message, _)] = of_two_hosts(waiting, Peer("10.0.0.1", "10.0.0.2", 0, 0, "eth0", down=True))
    assert slug == "peer-connection-lost"
    assert "eth0, the interface of this host at 10.0.0.1, is down" in message
    for healthy in (Peer("10.0.0.1", "10.0.0.2", 0, 0, "eth0"), Peer("10.0.0.1", "10.0.0.2", 9, 1, "eth0")):
        [(slug, _, _)] = of_two_hosts(waiting, healthy)
        assert slug == "slow-rank"


FIRST = """\
import torch.distributed as dist
@contextmanager
def main_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()

def load():
    with main_first():
        if not os.path.exists(CACHE):
            build()
            dist.barrier()

load()
wrap(model)
"""


def of_main_first(file: str, *numbers: int) -> list[tuple[str, str, int | None]]:
    """Ask where rank 0 waits in its half, and the other rank is past its own; these are the barriers of rank 0."""
    lines = [14, 8][-len(numbers) :]
    zero = tuple(
        Communication(number, 1.0, "barrier", "0", "", Site(file, line, "load"))
        for number, line in zip(numbers, lines, strict=True)
    )
    one = (Communication(1, 1.0, "barrier", "0", "", Site(file, 5, "main_first")),)
    return asked(
        waits(file, 0, "barrier", 8, 11, 16, recent=zero),
        waits(file, 1, "DistributedDataParallel()", 17, recent=one),
    )


def test_a_barrier_that_met_one_half_of_a_pair_is_named(tmp_path: Path) -> None:
    """Rank 0 waits in the other half, which is not what it calls alone."""
    file = tmp_path / "first.py"
    file.write_text(FIRST)
    [(slug, message, line)] = of_main_first(str(file), 1, 2)

    assert (slug, line) == ("rank0-only-collective", 14)
    assert "rank 0 called barrier at first.py:14, under `if not os.path.exists(CACHE)`: it met the barrier" in message
    assert "which is to meet the one at first.py:8, where rank 0 waits in vain" in message


DECORATED = """\
import torch.distributed as dist
def main_only(fn):
    def wrapper(*args):
        if dist.get_rank() != 0:
            return None
        return fn(*args)
    return wrapper

@main_only
def save(model, path):
    dist.all_gather_object(states, model)

save(model, path)
"""


def test_the_decorator_of_what_communicates_is_to_go(tmp_path: Path) -> None:
    """The test stands in what the decorator made, where the call is not to move."""
    file = tmp_path / "decorated.py"
    file.write_text(DECORATED)
    stack = Site(str(file), 11, "save"), Site(str(file), 6, "wrapper"), Site(str(file), 13, "<module>")

    fix = without_decorator(stack, stack[1])
    assert fix is not None
    assert fix.diff == "-@main_only\n def save(model, path):"
    assert without_decorator(stack, stack[0]) is None


PRINTS = """\
import torch.distributed as dist
class Trainer:
    @property
    def is_main(self):
        return dist.get_rank() == 0
    def mean(self, loss):
        dist.all_reduce(loss)
    def fit(self):
        for epoch in range(3):
            loss = self.model(batch)
            if self.is_main:
                print(f"loss {self.mean(loss)}")
"""


def test_the_helper_that_one_rank_calls_is_what_all_call(tmp_path: Path) -> None:
    """Its own line has no test; that of its caller is shown, and is what the fix rewrites."""
    file = tmp_path / "prints.py"
    file.write_text(PRINTS)
    call = Communication(1, 1.0, "all_reduce", "0", "[]", Site(str(file), 7, "mean"))
    progress = (Progress(rank=0, forwards=9, recent=(call,)), Progress(rank=1, forwards=10, recent=()))
    event = PeerLost(pid=0, time=2.0, first=None, others=(), gone=(0,), progress=progress)
    [found] = where_it_ended_a_rank.examine(event)

    assert [each.source for each in found.evidence if each.seen == "if self.is_main"] == [f"{file}:12"]
    assert "+result = self.mean(loss)\n+if self.is_main:\n+    print(result)" in found.fix.diff


@pytest.mark.parametrize(("tags", "said"), [((1, 2, 3), "are 1 higher than"), ((1, 3, 4), None)])
def test_tags_that_are_all_off_by_one_are_told_as_that(script: str, tags: tuple[int, ...], said: str | None) -> None:
    """One pair of them says too little; where they are apart by several numbers, that pair is all that is known."""
    sides = []
    for rank, (operation, peer, own, line) in enumerate(
        (("send", "to 1", (0, 1, 2), GUARDED), ("recv", "from 0", tags, OPEN))
    ):
        recent = tuple(
            Communication(at, float(at), operation, "0", f"[4] {peer}, tag {tag}", Site(script, line, "f"))
            for at, tag in enumerate(own)
        )
        sides.append(waits(script, rank, operation, line, recent=recent))
    [(slug, message, _)] = asked(*sides)

    assert slug == "receive-deadlock"
    assert ("all tags of the receives" in message) is (said is not None)
    assert said is None or said in message


@pytest.mark.parametrize("loads", ["load()", "if dist.get_rank() == 0: load()"])
def test_the_half_that_was_met_before_is_told_from_outside(tmp_path: Path, loads: str) -> None:
    """No calls are known there: the other rank has come further, and the `with` holds one barrier; or it never came."""
    file = tmp_path / "first.py"
    file.write_text(FIRST.replace("\nload()", f"\n{loads}"))
    path, end = str(file), Site(str(file), 17, "<module>")
    stack = Site(path, 8, "main_first"), Site(path, 11, "load"), Site(path, 16, "<module>")
    zero = Position(rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=stack[0], operation="barrier", stack=stack)
    one = Position(rank=1, pid=2, doing=Doing.WAITING, seconds=9, site=end, operation="broadcast", stack=(end,))
    [found] = Dispatcher(CHECKS).see(Stalled(pid=0, time=2.0, ranks=(zero, one), world_size=2, outside=True))

    passed = "which is to meet the one at first.py:5: rank 1 is past that" in found.finding.message
    assert passed is (loads == "load()")
    assert not passed or "so that the barrier at first.py:14 has met it before" in found.finding.message
