"""The user's model with each setting of DDP, measured in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.bench.in_rank import steps
from ddpdoctor.bench.links import values
from ddpdoctor.bench.spread import Spread, is_faster, ratios, spread
from ddpdoctor.facets import NotRun

if TYPE_CHECKING:
    from ddpdoctor.examine.target import Target
    from ddpdoctor.jobs.pool import Jobs

ROUNDS = 5
ALONE, TOGETHER, DDP = "one rank, without DDP", "all ranks, without DDP", "DDP"


@dataclass(frozen=True, slots=True)
class Setting:
    """How the model is wrapped: what is passed to ``steps``, and what a user writes for it.

    ``is_free``: it computes the same and asks nothing of the training loop, so that it can be advised.
    """

    name: str
    given: tuple[tuple[str, Any], ...] = ()
    ranks: int | None = None
    is_free: bool = False


SETTINGS = (
    Setting(ALONE, (("bare", True),), ranks=1),
    Setting(TOGETHER, (("bare", True),)),
    Setting(DDP),
    Setting("gradient_as_bucket_view=True", (("gradient_as_bucket_view", True),), is_free=True),
    Setting("static_graph=True", (("static_graph", True),)),
    Setting("bucket_cap_mb=1", (("bucket_cap_mb", 1),), is_free=True),
    Setting("bucket_cap_mb=100", (("bucket_cap_mb", 100),), is_free=True),
    Setting("find_unused_parameters=True", (("find_unused_parameters", True),)),
    Setting("bf16_compress_hook", (("hook", "bf16_compress_hook"),)),
    Setting("no_sync, 4 batches a step", (("accumulate", 4),)),
)


@dataclass(frozen=True, slots=True)
class Tried:
    """What a setting gave: ``seconds`` of a batch, their ratio to DDP's of the same round; or why it gave nothing."""

    setting: Setting
    seconds: Spread | None = None
    ratio: Spread | None = None
    why_not: str = ""


NO_DATA_PARALLEL = Tried(
    Setting("DataParallel"),
    why_not="without GPUs it calls the module itself, in one process: there is nothing to compare",
)


@dataclass(frozen=True, slots=True)
class Parts:
    """Seconds of a batch: what one rank alone needs, what all need more who share the host, and DDP's exchange.

    The least and the greatest of the latter two are of single rounds; where the least is negative, nothing is told.
    """

    alone: Spread
    sharing: Spread
    exchange: Spread


@dataclass(frozen=True, slots=True)
class Tuned:
    """All settings; ``size`` are the bytes of the parameters, ``batch`` the samples of a rank's batch, 0 if unknown."""

    ranks: int
    size: int
    batch: int
    tried: tuple[Tried, ...]

    def of(self, name: str) -> Tried:
        """Return what a setting of this name gave."""
        return next(each for each in self.tried if each.setting.name == name)

    @property
    def scaling(self) -> Spread | None:
        """How many times the work of one rank all ranks do together; None where one of both gave nothing."""
        ratio = self.of(ALONE).ratio
        return None if ratio is None else Spread(*(self.ranks * each for each in (ratio.low, ratio.middle, ratio.high)))

    @property
    def parts(self) -> Parts | None:
        """What a batch under DDP consists of; None where one of the three was not measured."""
        alone, together, ddp = (self.of(name).seconds for name in (ALONE, TOGETHER, DDP))
        ratio = self.of(TOGETHER).ratio
        if alone is None or together is None or ddp is None or ratio is None:
            return None
        sharing = Spread(together.low - alone.high, together.middle - alone.middle, together.high - alone.low)
        exchange = Spread(*(ddp.middle * (1 - each) for each in (ratio.high, ratio.middle, ratio.low)))
        return Parts(alone, sharing, exchange)

    @property
    def best(self) -> Tried | None:
        """The fastest setting that can be advised, if it was faster in each round."""
        free = [each for each in self.tried if each.setting.is_free and each.ratio and is_faster(each.ratio)]
        return min(free, key=lambda each: each.ratio.middle if each.ratio else 1.0, default=None)


def tune(jobs: Jobs, backend: str, model: Target, batch: Target, progress: Callable[[str], None]) -> Tuned:
    """Train with each setting in ``ROUNDS`` rounds, so that what the machine does meanwhile is in all of them.

    Raises:
        NotRun: plain DDP does not train here; the text says why.
    """
    found: dict[str, list[float]] = {each.name: [] for each in SETTINGS}
    failed: dict[str, str] = {}
    size = samples = 0
    for number in range(ROUNDS):
        for setting in SETTINGS:
            if setting.name in failed:
                continue
            progress(f"round {number + 1} of {ROUNDS}: {setting.name}")
            job = jobs.run(
                steps, model, batch, dict(setting.given), 0.4, ranks=setting.ranks, backend=backend, deadline=120
            )
            try:
                ranks = values(job)
            except NotRun as exc:
                if setting.name == DDP:
                    raise NotRun(
                        f"the model does not train under DDP: {exc}; why: "
                        f"ddpdoctor check --model {model} --batch {batch}"
                    ) from None
                failed[setting.name] = str(exc)
                continue
            found[setting.name].append(max(rank[0] for rank in ranks))
            size, samples = ranks[0][1:]
    tried = tuple(_tried(each, found[each.name], found[DDP], failed.get(each.name, "")) for each in SETTINGS)
    if backend == "gloo":
        tried = (*tried, NO_DATA_PARALLEL)
    return Tuned(jobs.world_size, size, samples, tried)


def _tried(setting: Setting, times: list[float], base: list[float], why_not: str) -> Tried:
    if why_not:
        return Tried(setting, why_not=why_not)
    return Tried(setting, spread(times), ratios(times, base))
