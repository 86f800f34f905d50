"""Checksums of the rows that models train on where no loader gives them: slices by hand, draws, environments.

They are computed where the rows lie, and read when a compared step is told: nothing is waited for before. What a
wrapped model is given its forward tells; of another one, whose gradients the script exchanges, a hook for all modules
does, which is there until enough rows have come.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import RowsGiven
from ddpdoctor.watch.events.data.batches import UNWRAPPED
from ddpdoctor.watch.rank.compiled import has_compiled, is_traced
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.process import Process

MOST = 2000  # rows
FORWARDS = 60
COLUMNS = 1024  # of a row that are looked at
TOLD = (10, 30, 100)  # steps
DIGITS = 9
GOLDEN = 0.6180339887498949
PAIR = 2


@dataclass(slots=True)
class GivenRows:
    """The rows of the first forwards of the first model that trains without a loader."""

    recorder: Process
    model: int | None = None
    sums: list[Any] = field(default_factory=list)
    count: int = 0
    site: Site | None = None
    over: bool = False
    active: bool = True
    """False where code is compiled: a compiler would look at each number that changes here."""
    told: int = 0
    followed: weakref.ref[Any] | None = None
    handle: Any = None
    loaded: bool = False
    several: bool = False
    """Whether more than the first argument was given, of which nothing is known."""
    related: bool = False

    def follow(self, module: Any) -> None:
        """Look at what a module that nobody has wrapped is given from now on."""
        wanted = self.active and not (self.over or self.loaded)
        if self.followed is None and wanted and not has_compiled():
            from torch.nn.modules.module import register_module_forward_pre_hook

            self.followed = weakref.ref(module)
            self.handle = register_module_forward_pre_hook(self._called)

    def _called(self, module: Any, args: tuple[Any, ...]) -> None:
        if is_traced():
            return
        followed = self.followed() if self.followed is not None else None
        if followed is not None and followed is module and followed.training:
            self.recorder.safely(self._look, args)

    def _look(self, args: tuple[Any, ...]) -> None:
        import torch

        if torch.is_grad_enabled():
            self.taken(UNWRAPPED, args)

    def loads(self) -> None:
        """Follow no module: a loader gives rows where gradients are on, and nobody has wrapped a model."""
        self.loaded = True
        if self.handle is not None:
            self.by_loader()
            self.end()

    def end(self) -> None:
        """Take the hook away."""
        if self.handle is not None:
            self.handle.remove()
            self.handle = None

    def taken(self, model: int, args: tuple[Any, ...]) -> None:
        """Take note of what a model that trains is given: its first argument, or pairs of numbers, one a row."""
        import torch

        given = [each for each in args if hasattr(each, "shape")]
        if self.model == UNWRAPPED != model:
            self._begin_anew()
        if self.over or self.model not in {None, model}:
            return
        shape: Any = given[0].shape if given and given[0] is args[0] else ()
        pairs = len(shape) == 1 and len(given) > 1 and all(tuple(each.shape) == tuple(shape) for each in given)
        if not (len(shape) > 1 or pairs) or not all(shape):  # rows of several numbers
            self.over = True
            return
        if self.model is None:
            self.model, self.site = model, user_site()
        self.several = self.several or (len(given) > 1 and not pairs)
        self.related = self.related or any(_relates(each.shape, shape[0]) for each in given[1:])
        self.sums.append(row_sums(torch.stack([each.double() for each in given], 1) if pairs else given[0]))
        self.count += int(shape[0])
        self.over = self.count > MOST or len(self.sums) >= FORWARDS

    def _begin_anew(self) -> None:
        """Forget a model that nobody has wrapped: another one is, and trains after it."""
        self.end()
        self.sums.clear()
        self.model, self.count, self.told, self.several, self.related = None, 0, 0, False, False
        self.over = self.loaded or not self.active

    def quiet(self) -> None:
        """Look at nothing any more: something is compiled, or traced."""
        self.active = False
        self.by_loader()
        self.end()

    def by_loader(self) -> None:
        """Look no further: a loader gives the rows, and is looked at itself."""
        self.over = True
        self.sums.clear()

    def stepped(self, steps: int) -> None:
        """Tell what was given, after some steps. This reads from the device."""
        import torch

        if self.over:
            self.end()
        if not self.sums or steps not in TOLD or steps <= self.told:
            return
        self.told = steps
        rows = torch.cat([each.to(self.sums[0].device) for each in self.sums]).tolist()
        self.recorder.emit(
            RowsGiven,
            number=steps,
            model=UNWRAPPED if self.model is None else self.model,
            rows=tuple(float(f"{value:.{DIGITS}g}") for value in rows),
            forwards=len(self.sums),
            several=self.several,
            related=self.related,
            site=self.site,
        )
        if self.over or steps == TOLD[-1]:
            self.by_loader()
            self.end()


def _relates(shape: Any, rows: int) -> bool:
    """Whether a tensor says which rows belong together: a square one, or pairs of their numbers."""
    return len(shape) == PAIR and (tuple(shape) == (rows, rows) or shape[0] == PAIR != rows)


def row_sums(given: Any) -> Any:
    """Return a weighted sum of each row; the weights are those of a low-discrepancy sequence, drawn from nothing."""
    import torch

    with torch.no_grad():
        flat = given.detach().reshape(len(given), -1)
        flat = flat[:, :: max(1, flat.shape[1] // COLUMNS)].double()
        weights = torch.arange(1, flat.shape[1] + 1, device=flat.device, dtype=torch.float64).mul_(GOLDEN).frac_()
        return (flat * weights).sum(1)
