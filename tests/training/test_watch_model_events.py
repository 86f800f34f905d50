"""What the facets of models make of events that two ranks on one CPU cannot bring about; what undo puts back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ddpdoctor.findings import Severity
from ddpdoctor.watch.dispatcher import Dispatcher, Found
from ddpdoctor.watch.events import (
    AsyncWorkDropped,
    Event,
    Joined,
    OptimizerSeen,
    ParametersHeld,
    Site,
    StepFingerprinted,
    StepSampled,
    Wrapped,
)
from ddpdoctor.watch.settings import Settings

if TYPE_CHECKING:
    from ddpdoctor.facets import Check


def _story(pid: int, rank: int, time: float, backend: str = "gloo", **values: Any) -> list[Event]:
    """Return how one process joins, wraps a layer and takes two steps; ``values`` are of the second."""
    who: dict[str, Any] = {"pid": pid, "rank": rank, "time": time}
    step = StepSampled(
        **who, optimizer=0, model=0, number=1, gradients=(1.0,), parameters=(2.0,), forwards=1, synced=1,
        last_synced=True, unmanaged=(), moved=(), hook="", sent=0, idle=0, active=0, unheld=(), left=1, rates=(0.1,),
        closure=False,
    )  # fmt: skip
    made = StepFingerprinted(
        **who, optimizer=0, number=1, local=(), given=(), values=(), added=(), exchanges=(), sent=(), options=(),
        evaluating=(), subgroups=False, hooks=(),
    )  # fmt: skip
    return [
        Joined(**who, world_size=2, backend=backend),
        Wrapped(
            **who, model=0, inner=0, kind="Linear", group=(0, 1), trainable=("weight",), elements=64, buffers=0,
            broadcast_buffers=True, find_unused_parameters=False, static_graph=False,
        ),
        OptimizerSeen(**who, optimizer=0, kind="SGD", model=0, names=("weight",), others=0, frozen=(), gone=()),
        step,
        made,
        replace(step, number=2, **values),
        replace(made, number=2),
    ]  # fmt: skip


def _found(checks: dict[str, Check], *stories: list[Event]) -> list[Found]:
    judge = Dispatcher(checks.values())
    return [found for story in stories for event in story for found in judge.see(event)]


def test_a_model_that_moved_after_wrapping_is_a_warning(checks: dict[str, Check]) -> None:
    """It names the parameter and both devices."""
    moved = ("weight from cpu to cuda:0",)

    ((check, finding),) = _found(checks, *(_story(rank, rank, 1.0, moved=moved) for rank in range(2)))

    assert check.slug == "parameters-changed-after-wrapping"
    assert finding.severity is Severity.WARNING
    assert "weight from cpu to cuda:0" in finding.message


def test_ranks_of_an_earlier_attempt_are_not_compared(checks: dict[str, Check]) -> None:
    """After a restart other weights are no divergence; within one attempt they are."""
    before = [_story(rank, rank, 1.0) for rank in range(2)]
    after = [_story(10 + rank, rank, 100.0, parameters=(3.0,)) for rank in range(2)]

    assert _found(checks, *before, *after) == []
    ((check, _),) = _found(checks, before[0], _story(1, 1, 1.0, parameters=(3.0,)))
    assert check.slug == "replicas-diverge"


def test_a_norm_that_is_no_number_is_no_difference(checks: dict[str, Check]) -> None:
    """NaN is not equal to itself, and differs from nothing."""
    stories = [_story(rank, rank, 1.0, parameters=(float("nan"),)) for rank in range(2)]

    assert _found(checks, *stories) == []


@pytest.mark.parametrize(("backend", "severity"), [("gloo", Severity.ERROR), ("nccl", Severity.WARNING)])
def test_a_dropped_handle_weighs_less_where_a_stream_keeps_the_order(
    backend: str, severity: Severity, checks: dict[str, Check]
) -> None:
    """Over NCCL a synchronisation of the device waits for it, too."""
    dropped = AsyncWorkDropped(pid=0, rank=0, time=2.0, operation="all_reduce", count=2)

    ((_, finding),) = _found(checks, [*_story(0, 0, 1.0, backend), dropped])

    assert finding.severity is severity


def test_undo_puts_back_what_the_watch_of_models_replaced(tmp_path: Path) -> None:
    """Backward, the building of optimizers, handles and the global hooks of steps are as before."""
    import torch
    import torch.distributed as dist
    from torch.optim import optimizer

    from ddpdoctor.watch.rank.install import Attached

    def state() -> list[Any]:
        hooks = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
        return [
            torch.autograd.backward, optimizer.Optimizer.add_param_group, dist.Work.wait, dist.Work.get_future,
            torch.save, torch.load, torch.nn.Module.load_state_dict, *(list(each) for each in hooks),
        ]  # fmt: skip

    before = state()
    watch = Attached(Settings(session=str(tmp_path)))
    assert not any(now is then for now, then in zip(state()[:7], before[:7], strict=True))

    watch.undo()

    assert state() == before


@pytest.mark.parametrize(("missing", "told"), [((), True), ((1,), False), ((0, 1), True)])
def test_a_rank_that_lacks_a_gradient_exchanges_less_and_leaves_out_no_step(
    checks: dict[str, Check], missing: tuple[int, ...], *, told: bool
) -> None:
    """Where all ranks have the same gradients, another number of collectives is another point of the training."""
    slug = "step-left-out-on-some-ranks"

    def story(rank: int) -> list[Event]:
        who: dict[str, Any] = {"pid": rank + 1, "rank": rank, "time": 1.0, "optimizer": 0}
        *begun, first, _, last = _story(pid=rank + 1, rank=rank, time=1.0)
        held = ParametersHeld(**who, kind="SGD", names=("weight",), sizes=(64,), managed=(0,), constant=(False,))
        given = (None,) if rank in missing else ((1.0, 1.0),)
        assert isinstance(first, StepFingerprinted)
        assert isinstance(last, StepFingerprinted)
        steps = [replace(each, local=given, given=given, values=((1.0, 1.0),), added=(1,)) for each in (first, last)]
        return [*begun, held, replace(steps[0], backwards=1, clock=2), replace(steps[1], backwards=2, clock=4 + rank)]

    found = _found({slug: checks[slug]}, *map(story, range(2)))

    assert bool(found) is told


@pytest.mark.parametrize(("runs", "told"), [("threading.Thread(target=beat).start()", False), ("beat()", True)])
def test_collectives_of_a_thread_are_no_clock(
    checks: dict[str, Check], tmp_path: Path, runs: str, *, told: bool
) -> None:
    """They come when they come, so that the same step is made after more of them on one rank than on another."""
    slug = "step-left-out-on-some-ranks"
    script = tmp_path / "train.py"
    script.write_text(
        "import threading\nimport torch.distributed as dist\n\ndef beat():\n    dist.all_reduce(alive)\n\n"
        f"{runs}\noptimizer.step()\n"
    )

    def story(rank: int) -> list[Event]:
        who: dict[str, Any] = {"pid": rank + 1, "rank": rank, "time": 1.0, "optimizer": 0}
        *begun, first, _, last = _story(pid=rank + 1, rank=rank, time=1.0)
        held = ParametersHeld(**who, kind="SGD", names=("weight",), sizes=(64,), managed=(0,), constant=(False,))
        assert isinstance(first, StepFingerprinted)
        assert isinstance(last, StepFingerprinted)
        given: dict[str, Any] = {"local": ((1.0, 1.0),), "given": ((1.0, 1.0),), "values": ((1.0, 1.0),), "added": (1,)}
        site = Site(str(script), 8, "<module>")
        steps = [replace(each, site=site, **given) for each in (first, last)]
        return [*begun, held, replace(steps[0], backwards=1, clock=2), replace(steps[1], backwards=2, clock=4 + rank)]

    assert bool(_found({slug: checks[slug]}, *map(story, range(2)))) is told
