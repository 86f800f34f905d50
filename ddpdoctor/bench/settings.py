"""The user's model with each setting of DDP, measured in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.bench.combined import combinations
from ddpdoctor.bench.links import values
from ddpdoctor.bench.setting import ALONE, DATA_PARALLEL, DDP, ON_GPUS, SETTINGS, TOGETHER, Setting, Tried
from ddpdoctor.bench.spread import LEAST, Spread, interval, is_faster, ratios, spread
from ddpdoctor.bench.steps_in_rank import steps
from ddpdoctor.facets import NotRun

if TYPE_CHECKING:
    from ddpdoctor.examine.target import Target
    from ddpdoctor.jobs.pool import Jobs

ROUNDS = 5
AGAIN = 12  # rounds of what was fastest among all, and of DDP
SECONDS = 0.4  # of steps with one setting in a round
FEWEST, FEWEST_AGAIN = 4, 6  # rounds, however long they take: fewer agree by chance, and give no interval
ENOUGH, ENOUGH_AGAIN = 40.0, 90.0  # seconds since the begin, beyond which no further round begins


NO_DATA_PARALLEL = Tried(
    Setting(DATA_PARALLEL),
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
    """All settings; ``size`` are the bytes of the parameters, ``batch`` the samples of a rank's batch, 0 if unknown.

    ``again``: those that were fastest among all, measured once more by themselves, since the fastest of many is so by
    chance as well; their ratios are 95 % intervals. Only they are advised. ``is_cut``: time was up before all rounds.
    """

    ranks: int
    size: int
    batch: int
    tried: tuple[Tried, ...]
    again: tuple[Tried, ...] = ()
    is_cut: bool = False

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
        """The fastest setting that can be advised, if it was faster when it was measured again."""
        return _fastest(each for each in self.again if each.setting.is_free and each.ratio and is_faster(each.ratio))

    @property
    def fastest(self) -> Tried | None:
        """The fastest one that asks something of the training, or rounds, if it is faster than the best."""
        found = _fastest(
            each for each in self.again if not each.setting.is_free and each.ratio and is_faster(each.ratio)
        )
        if found is None or found.ratio is None:
            return None
        best = self.best
        return found if best is None or best.ratio is None or found.ratio.high < best.ratio.low else None


def candidates(tried: Sequence[Tried]) -> tuple[Setting, ...]:
    """Return what is measured again: the fastest that asks nothing, and the fastest of all under DDP where it asks."""
    under_ddp = [each for each in tried if each.setting.ranks is None and each.setting.name not in {TOGETHER, DDP}]
    free = _fastest(each for each in under_ddp if each.setting.is_free)
    found = (free, _fastest(under_ddp))
    return tuple(
        {
            each.setting.name: each.setting
            for each in found
            if each is not None and each.ratio is not None and each.ratio.middle * LEAST < 1
        }.values()
    )


def _fastest(tried: Iterable[Tried]) -> Tried | None:
    measured = (each for each in tried if each.ratio)
    return min(measured, key=lambda each: each.ratio.middle if each.ratio else 1.0, default=None)


@dataclass(slots=True)
class Tuning:
    """What is measured since ``began``; ``size`` are the bytes of the parameters, ``samples`` the batch of a rank."""

    jobs: Jobs
    backend: str
    model: Target
    batch: Target
    progress: Callable[[str], None]
    size: int = 0
    samples: int = 0
    began: float = 0.0
    is_cut: bool = False

    def is_late(self, *, again: bool) -> bool:
        """Whether no further round begins, of all settings or of those that are measured again."""
        return time.monotonic() - self.began > (ENOUGH_AGAIN if again else ENOUGH)

    def rounds(
        self, settings: Sequence[Setting], what: str, count: int, summed: Callable[[Sequence[float]], Spread] = spread
    ) -> tuple[Tried, ...]:
        """Train with each setting in so many rounds, so that what the machine does meanwhile is in all of them.

        Each second round is backwards: what grows by itself, as the heat of a machine does, favours none.

        Raises:
            NotRun: plain DDP, which has to be one of them, does not train here; the text says why.
        """
        found: dict[str, list[float]] = {each.name: [] for each in settings}
        failed: dict[str, str] = {}
        fewest = FEWEST_AGAIN if summed is interval else FEWEST
        for number in range(count):
            if number >= fewest and self.is_late(again=summed is interval):
                self.is_cut = True
                break
            for setting in settings[:: -1 if number % 2 else 1]:
                if setting.name in failed:
                    continue
                self.progress(f"{what}, round {number + 1} of {count}: {setting.name}")
                try:
                    found[setting.name].append(self._seconds(setting))
                except NotRun as exc:
                    if setting.name == DDP:
                        raise NotRun(
                            f"the model does not train under DDP: {exc}; why: "
                            f"ddpdoctor check --model {self.model} --batch {self.batch}"
                        ) from None
                    failed[setting.name] = str(exc)
        return tuple(
            Tried(each, why_not=failed[each.name])
            if each.name in failed
            else Tried(each, spread(found[each.name]), ratios(found[each.name], found[DDP], summed))
            for each in settings
        )

    def _seconds(self, setting: Setting) -> float:
        """Return the seconds of a batch on the slowest rank.

        Raises:
            NotRun: a rank failed; the text says how.
        """
        ranks = values(
            self.jobs.run(
                steps, self.model, self.batch, dict(setting.given), SECONDS, ranks=setting.ranks, backend=self.backend,
                deadline=120,
            )
        )  # fmt: skip
        self.size, self.samples = ranks[0][1:]
        return max(float(rank[0]) for rank in ranks)


def tune(jobs: Jobs, backend: str, model: Target, batch: Target, progress: Callable[[str], None]) -> Tuned:
    """Train with each setting by itself, then with those together that can go together, then with the fastest again.

    Raises:
        NotRun: plain DDP does not train here; the text says why.
    """
    tuning = Tuning(jobs, backend, model, batch, progress, began=time.monotonic())
    alone = (*SETTINGS, *((ON_GPUS,) if backend == "nccl" else ()))
    plain = next(each for each in SETTINGS if each.name == DDP)

    def against_plain(settings: Sequence[Setting], *how: Any) -> Iterator[Tried]:
        """Yield what these gave."""
        late = tuning.is_late(again=interval in how)
        tuning.is_cut = tuning.is_cut or (late and bool(settings))
        found = tuning.rounds((plain, *settings), *how) if settings and not late else ()
        yield from (each for each in found if each.setting.name != DDP)

    tried = tuning.rounds(alone, "each setting", ROUNDS)
    tried = (*tried, *against_plain(combinations(tried), "together", ROUNDS))
    again = tuple(against_plain(candidates(tried), "the fastest again", AGAIN, interval))
    if backend == "gloo":
        tried = (*tried, NO_DATA_PARALLEL)
    return Tuned(jobs.world_size, tuning.size, tuning.samples, tried, again, tuning.is_cut)
