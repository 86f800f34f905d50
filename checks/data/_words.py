"""What several checks of loaders say, or ask, in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import NotRun, Place

if TYPE_CHECKING:
    from ddpdoctor.check import Index, LoaderExam

SHOWN = 8


def shown(indices: tuple[Index, ...], number: int = SHOWN) -> str:
    """Return the first indices."""
    more = ", ..." if len(indices) > number else ""
    return f"[{', '.join(str(index) for index in indices[:number])}{more}]"


def counted(number: int, noun: str) -> str:
    """Return ``1 sample`` or ``3 samples``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def at(loader: LoaderExam, *, sampler: bool = False) -> Place:
    """Return the place where the sampler or the loader is constructed, as far as it is known."""
    line = (loader.source.sampler if sampler else None) or loader.source.loader
    if line is not None:
        return Place(file=line[0], line=line[1])
    return Place(file=loader.file) if loader.file else Place()


def unless_a_framework_splits(loader: LoaderExam) -> None:
    """Leave alone what a framework changes before the training begins.

    Raises:
        NotRun: the training imports one that puts samplers of its own into loaders.
    """
    if loader.source.frameworks:
        raise NotRun(f"{loader.source.frameworks[0]}, which the training imports, splits the data by itself")
