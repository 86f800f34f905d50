"""The search: the fewest changes with which a start works, or is faster; each answer is confirmed by a second run."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.bench.spread import Spread, spread
from ddpdoctor.bisect.reason import Ending
from ddpdoctor.bisect.trial import Trial

if TYPE_CHECKING:
    from ddpdoctor.bisect.changes import Change

ROUNDS = 3  # of a run as it is and one with all changes, in turn, before anything is called faster
GAIN = 1.25  # how many times as fast the slowest changed run has to be as the fastest unchanged one
SLOW_START = 1.0  # seconds that a start has to lose, to be called slow
SLOW_STEP = 0.001  # seconds that a step has to lose
FACTOR = 6.0  # how many times as long as a start that works one is waited for
LEAST = 20.0  # seconds that a start is waited for, at least

Changes = tuple["Change", ...]
Run = Callable[[Changes, float], Trial]


class OutOfTimeError(Exception):
    """The time of the whole search is used up."""


class Kind(enum.Enum):
    """What a search came to."""

    FOUND = "found"
    FASTER = "faster"
    WORKS = "works as it is"
    PROGRAM = "no matter of these settings"
    HOSTS = "ranks on other hosts"
    NOT_FOUND = "not found"
    UNSTEADY = "cannot tell"
    OUT_OF_TIME = "out of time"


@dataclass(slots=True)
class Search:
    """The runs so far; ``within`` is how long a start is waited for, in seconds."""

    run: Run
    within: float
    trials: list[Trial] = field(default_factory=list)

    def try_out(self, changes: Iterable[Change]) -> Trial:
        """Make one run."""
        trial = self.run(tuple(changes), self.within)
        self.trials.append(trial)
        if trial.works:
            self.within = min(self.within, max(LEAST, FACTOR * trial.seconds))
        return trial


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found: the changes, and of which figure (``start`` or ``step``) they change how much, in seconds."""

    kind: Kind
    trials: tuple[Trial, ...]
    changes: Changes = ()
    figure: str = ""
    before: Spread | None = None
    after: Spread | None = None


def with_changes(trials: Iterable[Trial], changes: Changes) -> list[Trial]:
    """Return the runs that were made with these changes."""
    return [each for each in trials if each.changes == changes]


def compared(trials: Sequence[Trial], changes: Changes, figure: str) -> tuple[Spread | None, Spread | None]:
    """Return a figure of the runs as the training is, and of those with these changes."""
    return measured(with_changes(trials, ()), figure), measured(with_changes(trials, changes), figure)


def bisect(run: Run, within: float, taken_back: Changes, offered: Callable[[Trial], Sequence[Changes]]) -> Answer:
    """Find the fewest changes that make a start work; where it works, those that make it faster.

    ``run`` makes a run with changes, for so many seconds at most. ``taken_back`` are the settings that are there;
    ``offered`` returns other sets of changes, by what the first run has shown. ``run`` raises OutOfTimeError.
    """
    search = Search(run, within)
    try:
        first = search.try_out(())
        if first.ending in (Ending.PROGRAM, Ending.NO_RANK):
            return Answer(Kind.PROGRAM, tuple(search.trials))
        if first.elsewhere:
            return Answer(Kind.HOSTS, tuple(search.trials))  # they would have to make each run too, at the same time
        sets = [*([taken_back] if taken_back else []), *offered(first)]
        return _faster(search, sets) if first.works else _works(search, sets)
    except OutOfTimeError:
        return Answer(Kind.OUT_OF_TIME, tuple(search.trials), _best(search.trials))


def _best(trials: Sequence[Trial]) -> Changes:
    """Return the fewest changes with which a run worked so far."""
    return min((each.changes for each in trials if each.works), key=len, default=())


def _works(search: Search, sets: Sequence[Changes]) -> Answer:
    whole = next((each for each in sets if each and search.try_out(each).works), None)
    if whole is None:
        return Answer(Kind.NOT_FOUND, tuple(search.trials))
    found = smallest(whole, lambda part: search.try_out(part).works)
    again = (search.try_out(()).works, search.try_out(found).works)
    kind = Kind.FOUND if again == (False, True) else Kind.UNSTEADY
    return Answer(kind, tuple(search.trials), found)


def _faster(search: Search, sets: Sequence[Changes]) -> Answer:
    """Compare runs as they are with runs in which settings are changed, in turn."""
    for whole in filter(None, sets[:2]):
        for number in range(ROUNDS):
            search.try_out(whole)
            if number + 1 < ROUNDS:
                search.try_out(())
        for figure, worth in (("start", SLOW_START), ("step", SLOW_STEP)):
            before, after = compared(search.trials, whole, figure)
            if before is not None and after is not None and is_gain(before, after, worth):
                line = math.sqrt(before.low * after.high)
                return _confirmed(
                    search, smallest(whole, functools.partial(_below, search, figure, line)), figure, worth
                )
    kind = Kind.WORKS if all(each.works for each in with_changes(search.trials, ())) else Kind.UNSTEADY
    return Answer(kind, tuple(search.trials))


def _confirmed(search: Search, found: Changes, figure: str, worth: float) -> Answer:
    """Measure what was found in turn with the run as it is, once more."""
    for _ in range(ROUNDS - 1):
        search.try_out(())
        search.try_out(found)
    before, after = compared(search.trials, found, figure)
    sure = before is not None and after is not None and is_gain(before, after, worth)
    return Answer(Kind.FASTER if sure else Kind.UNSTEADY, tuple(search.trials), found, figure, before, after)


def measured(trials: Sequence[Trial], figure: str) -> Spread | None:
    """Return a figure of all these runs; None where one of them has none."""
    values = [getattr(each, figure) for each in trials]
    return None if not values or None in values else spread(values)


def is_gain(before: Spread, after: Spread, worth: float) -> bool:
    """Whether the slowest run after is much faster than the fastest before."""
    return before.low > GAIN * after.high and before.low - after.high > worth


def _below(search: Search, figure: str, line: float, part: Changes) -> bool:
    """Whether two runs are both on the fast side."""
    for _ in range(2):
        value = getattr(search.try_out(part), figure)
        if value is None or value > line:
            return False
    return True


def smallest(whole: Changes, works: Callable[[Changes], bool]) -> Changes:
    """Return changes of which none can be left out, with which it works; each of them alone is tried in halves.

    Zeller's delta debugging: halves, then what is left without each part, then finer parts.
    """
    found, parts = whole, 2
    while len(found) > 1:
        pieces = [found[at * len(found) // parts : (at + 1) * len(found) // parts] for at in range(parts)]
        rests = [tuple(each for each in found if each not in piece) for piece in pieces] if parts > 2 else []  # noqa: PLR2004 - of two halves the rest is the other
        smaller = next((each for each in (*pieces, *rests) if works(each)), None)
        if smaller is not None:
            found, parts = smaller, 2 if smaller in pieces else max(parts - 1, 2)
        elif parts >= len(found):
            return found
        else:
            parts = min(2 * parts, len(found))
    return found
