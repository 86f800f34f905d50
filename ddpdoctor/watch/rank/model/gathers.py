"""Of which modules fully_shard gathers the weights, one after the other, in each group of ranks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import Gathered, Gathers
from ddpdoctor.watch.rank.model.shards_in import bare
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ddpdoctor.watch.rank.process import Process

    Roots = Callable[[], list[Any]]

MOST = 64  # changes that are told of a group: each is an event
LONG = 256  # gathers after which a row of them ends with a forward, too: evaluations are long, and make no step
ENDLESS = 8192  # gathers without a forward: of no group that long is more told
UNKNOWN = ""


@dataclass(slots=True)
class Course:
    """The gathers of one group: ``before`` this row of them so many, ``row`` since; ``told`` is the last row told."""

    group: str
    ranks: tuple[int, ...]
    before: int = 0
    steps: int = 0
    forwards: int = 0
    row: list[int] = field(default_factory=list)
    told: tuple[int, ...] | None = None
    rows: int = 0
    changes: int = 0
    is_over: bool = False


@dataclass(slots=True)
class Courses:
    """All groups' gathers. A row of them, those of a step, is told where it is another one than the last.

    It is told again now and then, and at the end: up to there all rows were as the last that was told.
    """

    groups: dict[str, Course] = field(default_factory=dict)
    numbers: dict[tuple[str | None, ...], int] = field(default_factory=dict)
    modules: list[Gathered] = field(default_factory=list)
    models: tuple[int, str] = (0, "")

    def take(self, process: Process, parameters: Iterable[Any], group: Any, roots: Roots) -> None:
        """Take up a gather that was just begun."""
        name = group.group_name
        course = self.groups.get(name)
        if course is None:
            import torch.distributed as dist

            course = self.groups[name] = Course(name, tuple(dist.get_process_group_ranks(group)))
        if course.is_over:
            return
        counters = process.writer.counters
        steps, forwards = counters[event_log.STEPS], counters[event_log.FORWARDS]
        if steps != course.steps or (len(course.row) >= LONG and forwards != course.forwards):
            self._close(process, course, roots)
        course.steps, course.forwards = steps, forwards
        course.row.append(self._number(parameters))
        if len(course.row) >= ENDLESS:
            course.is_over = True

    def end(self, process: Process, roots: Roots) -> None:
        """Tell up to where it is known; a group that is made later begins anew, whatever its name."""
        for course in self.groups.values():
            if not course.is_over:
                self._close(process, course, roots, at_end=True)
        self.groups.clear()

    def _number(self, parameters: Iterable[Any]) -> int:
        names = tuple([each._param_fqn for each in parameters])  # noqa: SLF001 - said nowhere else
        number = self.numbers.get(names)
        if number is None:
            number = self.numbers[names] = len(self.modules)
            site = user_site()
            known = [bare(each) for each in names if each]
            module = _module(known) if known and len(known) == len(names) else UNKNOWN
            self.modules.append(Gathered(module, site.file if site else None, site.line if site else 0))
        return number

    def _close(self, process: Process, course: Course, roots: Roots, *, at_end: bool = False) -> None:
        row = tuple(course.row)
        if not row:
            return
        changed = row != course.told
        course.rows += 1
        if changed or at_end or course.rows & (course.rows - 1) == 0:
            self._tell(process, course, row, roots)
        course.changes += changed
        course.before += len(row)
        course.row, course.told = [], row
        course.is_over = course.changes >= MOST

    def _tell(self, process: Process, course: Course, row: tuple[int, ...], roots: Roots) -> None:
        used = sorted(set(row))
        places = {number: place for place, number in enumerate(used)}
        process.emit(
            Gathers,
            group=course.group,
            ranks=course.ranks,
            before=course.before,
            step=course.steps + 1,
            modules=tuple(self.modules[each] for each in used),
            row=tuple(places[each] for each in row),
            models=self._digest(roots()),
            site=None,
        )

    def _digest(self, roots: list[Any]) -> str:
        """Return a digest of the names of all sharded parameters: ranks that share their shards have the same."""
        if self.models[0] != len(roots):
            names = sorted(name for root in roots for name, _ in root.named_parameters())
            self.models = (len(roots), hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest())
        return self.models[1]


def _module(names: list[str]) -> str:
    """Return what parameters that are gathered at once are called: the module that has them all."""
    parts = zip(*(each.split(".")[:-1] for each in names), strict=False)
    common = ".".join(same[0] for same in takewhile(lambda each: len(set(each)) == 1, parts))
    return common or (f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0])
