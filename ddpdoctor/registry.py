"""Finds and loads the checks: the only module that knows where they live."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pkgutil
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import Card, Check, Facet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

BUILT_IN = "ddpdoctor.checks"
GROUP = "ddpdoctor.checks"
CODE = re.compile(r"[A-Z]{3,}\d{3}")


class LoadError(Exception):
    """A check, or a package of checks, cannot be loaded; the text names it and says why."""


def load_checks() -> tuple[Check, ...]:
    """Load the built-in checks and those of the entry-point group ``ddpdoctor.checks``, sorted by code.

    Raises:
        LoadError: a module fails to import, declares no valid check, or claims a code or slug that is taken.
            A check is never left out in silence.
    """
    others = sorted(entry.value for entry in importlib.metadata.entry_points(group=GROUP))
    packages = [_imported(name) for name in (BUILT_IN, *others)]
    checks = sorted((check for package in packages for check in _walk(package)), key=lambda check: check.code)
    _require_unique(checks, lambda check: (check.code,))
    _require_unique(checks, lambda check: (check.slug, *check.known_as))
    return tuple(checks)


def _require_unique(checks: list[Check], names: Callable[[Check], tuple[str, ...]]) -> None:
    taken: dict[str, Check] = {}
    for check in checks:
        for name in names(check):
            if name in taken:
                raise LoadError(f"{check.origin} and {taken[name].origin} both claim {name}")
            taken[name] = check


def find(checks: tuple[Check, ...], name: str) -> Check | None:
    """Find a check by its code, its slug or another name of it, whatever the case; None when there is none."""
    wanted = name.lower().replace("_", "-")
    return next((check for check in checks if wanted in (check.code.lower(), check.slug, *check.known_as)), None)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name == BUILT_IN:
            raise LoadError("ddpdoctor runs from a checkout that is not installed: pip install -e .") from exc
        raise LoadError(f"the checks of {name} cannot be imported: {exc}") from exc
    except Exception as exc:  # whatever a third party's module raises, the user learns which one it was
        raise LoadError(f"the checks of {name} cannot be imported: {type(exc).__name__}: {exc}") from exc


def _walk(package: ModuleType) -> Iterator[Check]:
    """Yield a check for each module of the package whose name does not begin with an underscore."""
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if info.name.rpartition(".")[2].startswith("_"):
            continue
        module = _imported(info.name)
        if info.ispkg:
            yield from _walk(module)
        else:
            yield _check(module)


def _check(module: ModuleType) -> Check:
    cards = [value for value in vars(module).values() if isinstance(value, Card)]
    facets = tuple(value for value in vars(module).values() if isinstance(value, Facet))
    page = inspect.getdoc(module) or ""
    title, _, body = page.partition("\n")
    for wrong, problem in (
        (len(cards) != 1, f"declares {len(cards)} cards, expected one"),
        (not facets, "has no facet: nothing can recognise it"),
        (
            not (title.endswith(".") and body.strip()),
            "needs a docstring: a title that ends in a full stop, and a page",
        ),
        (
            bool(cards) and not CODE.fullmatch(cards[0].code),
            "has a code that is not letters and three digits",
        ),
    ):
        if wrong:
            raise LoadError(f"{module.__name__} {problem}")
    area, name = module.__name__.split(".")[-2:]
    return Check(
        code=cards[0].code,
        slug=name.replace("_", "-"),
        area=area,
        severity=cards[0].severity,
        title=title.rstrip("."),
        page=page,
        facets=facets,
        origin=module.__name__,
        known_as=cards[0].known_as,
    )
