"""Families: the same thing is seen by several checks, and exactly one of them may speak of it."""

from __future__ import annotations

import enum

import pytest
from helpers import CHECKS, PREPARED
from hypothesis import given, strategies as st

from ddpdoctor.engine import evaluate
from ddpdoctor.facets import Check, Facet, Instrument, LogPattern
from ddpdoctor.logs.candidates import candidates
from ddpdoctor.logs.read.sources import Origin
from ddpdoctor.watch.events import Communication, Doing, Failed, Joining, PeerLost, Position, Progress, Site, Stalled
from ddpdoctor.watch.training import Training

CLAIMS = [(check, facet) for check in CHECKS for facet in check.facets if facet.claim]
FAMILIES = {type(member) for _, facet in CLAIMS if facet.claim for member in facet.claim.members}


def shown(facet: Facet) -> object:
    """Return what a facet is shown: a type of events, or a pattern."""
    return facet.subject.pattern if isinstance(facet.subject, LogPattern) else facet.subject


def test_there_are_families_of_hangs_losses_time_outs_mismatches_and_refusals() -> None:
    """What follows is about something."""
    assert {family.__name__ for family in FAMILIES} == {"Hang", "Loss", "Timeout", "Mismatch", "Reason"}


@pytest.mark.parametrize("family", sorted(FAMILIES, key=str), ids=lambda family: family.__name__)
def test_each_member_of_a_family_is_claimed_by_one_check(family: type[enum.Enum]) -> None:
    """No member is left to nobody, none has two that speak of it."""
    for member in family:
        claimants = {check.slug for check, facet in CLAIMS if facet.claim and member in facet.claim.members}
        assert len(claimants) == 1, (member, claimants)


def test_who_is_shown_what_a_family_is_about_has_a_claim() -> None:
    """Nobody speaks of a hang, or of a time-out of NCCL, past the family."""
    about = {shown(facet) for _, facet in CLAIMS}

    assert {
        (check.slug, facet.examine.__name__)
        for check in CHECKS
        for facet in check.facets
        if shown(facet) in about and facet.instrument is not Instrument.PROBE and not facet.claim
    } == set()


SITES = st.none() | st.builds(Site, st.just("train.py"), st.integers(1, 3), st.just("main"))
OPERATIONS = st.sampled_from(["barrier", "all_reduce", "send", "recv", "backward", "init_process_group"])
CALLS = st.builds(
    Communication, number=st.integers(1, 3), time=st.floats(0, 9), operation=OPERATIONS,
    group=st.sampled_from(["", "0", "1"]), shapes=st.sampled_from(["", "[2]", "[3]"]), site=SITES,
)  # fmt: skip
RANK = st.tuples(st.sampled_from(Doing), OPERATIONS, SITES, st.lists(CALLS, max_size=3).map(tuple), st.booleans())


@given(st.lists(RANK, min_size=2, max_size=4), st.integers(2, 5))
def test_of_a_hang_one_check_speaks_at_most(
    ranks: list[tuple[Doing, str, Site, tuple[Communication, ...], bool]], world_size: int
) -> None:
    """Whatever the ranks do, as long as one of them waits; and none of the checks crashes."""
    ranks[0] = (Doing.WAITING, *ranks[0][1:4], True)
    training = Training()
    positions = []
    for rank, (doing, operation, site, recent, came) in enumerate(ranks):
        if came:
            training.add(Joining(pid=rank + 1, time=0.0, rank=rank, world_size=world_size, backend="gloo"))
        waits = operation if doing is Doing.WAITING else ""
        positions.append(
            Position(rank=rank, pid=rank + 1, doing=doing, seconds=9, operation=waits, site=site, recent=recent)
        )
    event = Stalled(pid=0, time=0.0, ranks=tuple(positions), world_size=max(world_size, len(ranks)))
    offers = {"event": event, "training": training}
    said = {
        check.slug: evaluate(check, facet, offers.__getitem__) for check, facet in CLAIMS if facet.subject is Stalled
    }

    assert [(slug, each.crash) for slug, each in said.items() if each.crash] == []
    assert len([slug for slug, each in said.items() if each.findings]) <= 1


FAILURES = st.builds(
    Failed, pid=st.just(1), time=st.floats(0, 9), rank=st.integers(0, 3), site=SITES,
    error=st.sampled_from(["RuntimeError", "ValueError"]),
    text=st.sampled_from(["ValueError: no data", "RuntimeError: Connection closed by peer"]),
)  # fmt: skip
PROGRESS = st.tuples(st.integers(0, 3), st.lists(CALLS, max_size=3).map(tuple), st.booleans())


@given(
    st.none() | FAILURES, st.lists(FAILURES, max_size=2).map(tuple), st.lists(PROGRESS, min_size=2, max_size=4),
    st.lists(SITES.filter(bool), max_size=2).map(tuple), st.booleans(),
)  # fmt: skip
def test_of_a_loss_one_check_speaks_at_most(
    first: Failed | None,
    others: tuple[Failed, ...],
    ranks: list[tuple[int, tuple[Communication, ...], bool]],
    stack: tuple[Site, ...],
    alone: bool,  # noqa: FBT001 - drawn
) -> None:
    """Whatever the ranks have called, and whoever is gone or has ended; none of the checks crashes."""
    progress = tuple(
        Progress(rank=rank, forwards=forwards, recent=recent, ended=ended, steps=forwards)
        for rank, (forwards, recent, ended) in enumerate(ranks)
    )
    event = PeerLost(
        pid=0, time=9.0, first=first, others=others, progress=progress, stack=stack,
        gone=tuple(each.rank for each in progress if not each.ended and each.forwards < 2),
        ended=tuple(each.rank for each in progress if each.ended),
    )  # fmt: skip
    training = Training()
    for rank in range(len(ranks) + alone):
        training.add(Joining(pid=rank + 1, time=0.0, rank=rank, world_size=len(ranks) + alone, backend="gloo"))
    offers = {"event": event, "training": training}
    said = {
        (check.slug, facet.examine.__name__): evaluate(check, facet, offers.__getitem__)
        for check, facet in CLAIMS
        if facet.subject is PeerLost
    }

    assert [(slug, each.crash) for slug, each in said.items() if each.crash] == []
    assert len([slug for slug, each in said.items() if each.findings]) <= 1


TOPS = ["state_dict", "model", "optimizer", "epoch", "n_averaged", "flat_param_0"]
NAMES = ["conv1.weight", "fc.weight", "bn1.num_batches_tracked", "bn2.num_batches_tracked", "emb.weight"]
FRONTS = [
    "",
    "module.",
    "_orig_mod.",
    "_forward_module.",
    "_fsdp_wrapped_module.",
    "module._checkpoint_wrapped_module.",
]
SIZES = st.sampled_from(["8, 4", "2, 4", "1", "0", "8", "16, 4, 3"])
KEYS: st.SearchStrategy[list[str]] = (
    st.just([])
    | st.lists(st.sampled_from(TOPS), min_size=1, max_size=3)
    | st.builds(
        lambda front, names: [front + name for name in names],
        st.sampled_from(FRONTS),
        st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    )
)
SHAPES = st.lists(st.tuples(st.sampled_from(NAMES), SIZES, SIZES), max_size=2)
SURROUNDINGS = st.sampled_from(["", "strategy: FSDPStrategy()\n"])


def refused(model: str, missing: list[str], unexpected: list[str], shapes: list[tuple[str, str, str]]) -> str:
    """Write what load_state_dict raises."""
    return "\n".join(
        (
            f"RuntimeError: Error(s) in loading state_dict for {model}:",
            *(f"\t{side} key(s) in state_dict: {', '.join(map(repr, keys))}. "
              for side, keys in (("Missing", missing), ("Unexpected", unexpected)) if keys),
            *(f"\tsize mismatch for {key}: copying a param with shape torch.Size([{one}]) from checkpoint, "
              f"the shape in current model is torch.Size([{two}])." for key, one, two in shapes),
        )
    )  # fmt: skip


MODELS = st.sampled_from(["ResNet", "DistributedDataParallel", "DataParallel"])
REFUSALS = st.builds(refused, MODELS, KEYS, KEYS, SHAPES) | st.builds(
    lambda missing, unexpected: f"_IncompatibleKeys(missing_keys={missing}, unexpected_keys={unexpected})", KEYS, KEYS
)


@given(SURROUNDINGS, REFUSALS)
def test_of_a_refused_state_dict_one_check_speaks_at_most(surroundings: str, said: str) -> None:
    """Whatever keys and shapes do not fit, under whatever framework."""
    crashes: list[str] = []
    speak = spoken(surroundings + said + "\n", crashes)

    assert crashes == []
    assert len(speak) <= 1, speak


WAITS = st.builds(
    "[rank{0}]:[E1012 04:10:20.831 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={1}, OpType={2}, NumelIn={3}, NumelOut={4}, Timeout(ms)=600000) ran for 600031 milliseconds "
    "before timing out.\n".format,
    st.integers(0, 3), st.integers(1, 3), st.sampled_from(["ALLREDUCE", "_ALLGATHER_BASE", "BARRIER"]),
    st.sampled_from([1, 8]), st.sampled_from([1, 8, 32]),
)  # fmt: skip
CONTEXT = st.sampled_from(
    [
        "n:1:2 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n",
        "Packing:  11%|#         | 62000/560101 [03:12<25:38, 323.01 examples/s]\n",
        "#7 _save_checkpoint from trainer.py:12\n",
        "[rank1]: [PG ID 0 PG GUID 0(default_pg) Rank 1] last enqueued NCCL work: 1, last completed NCCL work: 1.\n",
    ]
)


@given(st.lists(WAITS | CONTEXT, min_size=1, max_size=6))
def test_of_time_outs_one_check_speaks_at_most(lines: list[str]) -> None:
    """However the ranks' lines differ, and whatever else the log shows."""
    crashes: list[str] = []
    speak = spoken("".join(lines), crashes)

    assert crashes == []
    assert len(speak) == any("Watchdog caught" in line for line in lines), speak


def spoken(log: str, crashes: list[str]) -> set[str]:
    """Return the checks whose claims speak of a log."""
    examined = PREPARED.anew()
    examined.read(Origin("train.log"), [log.encode()])
    claimed: set[tuple[Check, object]] = {(check, facet.subject) for check, facet in CLAIMS}
    found = candidates(examined.buffer.kept(), examined.patterns, crashes)
    return {each.check.slug for each in found if (each.check, each.log_pattern) in claimed}
