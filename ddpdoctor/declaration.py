"""What a module of checks declares: made a Check, or refused with the reason."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

from ddpdoctor.areas import AREAS
from ddpdoctor.facets import INPUTS, Ailment, Check, Facet, parameters

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

BUILT_IN = "ddpdoctor.checks"
CODE = re.compile(r"[A-Z]{3,}\d{3,4}")
SECTIONS = ("What happens", "How to be sure", "How to mend it", "Versions and sources")
"""The headings of a page, in this order."""


class LoadError(Exception):
    """A check, or a package of checks, cannot be loaded; the text names it and says why."""


def declared_check(module: ModuleType, package: str) -> Check:
    """Return the check that a module of a package of checks declares.

    Raises:
        LoadError: it declares no valid check.
    """
    declared = [value for value in vars(module).values() if isinstance(value, Ailment)]
    facets = tuple(value for value in vars(module).values() if isinstance(value, Facet))
    page = inspect.getdoc(module) or ""
    name = module.__name__.rpartition(".")[2]
    for problem in _problems(module, declared, facets, page):
        raise LoadError(f"{module.__name__} {problem}")
    return Check(
        code=declared[0].code,
        slug=name.replace("_", "-"),
        area=_area(module.__name__, package),
        severity=declared[0].severity,
        title=page.partition("\n")[0].rstrip("."),
        page=page,
        facets=facets,
        origin=module.__name__,
        supersedes=declared[0].supersedes,
    )


def _area(module: str, package: str) -> str:
    """Return a check's area: the folder below its package of checks, however deep it lies; else the package itself."""
    folders = module.removeprefix(f"{package}.").split(".")[:-1]
    return folders[0] if folders else package.rpartition(".")[2]


def _problems(module: ModuleType, declared: list[Ailment], facets: tuple[Facet, ...], page: str) -> Iterator[str]:
    """Yield what is wrong with a module that is to declare a check."""
    if len(declared) != 1:
        yield f"declares {len(declared)} ailments, expected one"
        return
    code = declared[0].code
    if not CODE.fullmatch(code):
        yield f"has the code {code!r}, which is not three capital letters or more and three or four digits"
    area = next((each for each in AREAS if module.__name__.startswith(f"{BUILT_IN}.{each.name}.")), None)
    if area is not None and not area.holds(code):
        yield f"has the code {code}; those of {area.name} are DDP{area.first} to DDP{area.last}"
    if not facets:
        yield "has no facet: nothing can recognise it"
    if not page.partition("\n")[0].endswith("."):
        yield "needs a docstring whose first line is the title and ends in a full stop"
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    if tuple(headings) != SECTIONS:
        yield f"has a page with the sections {headings}, expected {list(SECTIONS)}"
    yield from (problem for facet in facets for problem in _unknown_inputs(facet))


def _unknown_inputs(facet: Facet) -> Iterator[str]:
    offered = INPUTS[facet.instrument]
    for function in facet.functions:
        for name in {*parameters(function)} - {*offered}:
            code = inspect.unwrap(function).__code__
            yield (
                f"has a facet with an unknown parameter {name!r} ({code.co_filename}:{code.co_firstlineno}): "
                f"{facet.instrument.value} facets can ask for {', '.join(offered)}"
            )
