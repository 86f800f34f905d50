"""Finds and loads the checks: the only module that knows where they live."""

from __future__ import annotations

import enum
import functools
import graphlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
from typing import TYPE_CHECKING

from ddpdoctor.areas import by_area
from ddpdoctor.declaration import BUILT_IN, LoadError, declared_check
from ddpdoctor.facets import EVENTS, Check, Instrument, LogPattern, Role, without_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

GROUP = "ddpdoctor.checks"


def load_checks() -> tuple[Check, ...]:
    """Load the built-in checks and those of the entry-point group ``ddpdoctor.checks``, sorted by code.

    Raises:
        LoadError: a module fails to import, declares no valid check, claims a code or slug that is taken, or
            supersedes a check that is not there. A check is never left out in silence.
    """
    return _checks_of(tuple(_imported(name) for name in packages()))


def load_built_in() -> tuple[Check, ...]:
    """Load the built-in checks alone.

    Raises:
        LoadError: as above.
    """
    return _checks_of((_imported(BUILT_IN),))


@functools.cache
def _checks_of(every: tuple[ModuleType, ...]) -> tuple[Check, ...]:
    checks = sorted((check for package in every for check in _walk(package)), key=lambda check: by_area(check.code))
    _require_unique(checks, lambda check: check.code)
    _require_unique(checks, lambda check: check.slug)
    _require_causality(checks)
    _require_families(checks)
    return tuple(checks)


def load_linting() -> tuple[Check, ...]:
    """Load the checks that read source, sorted by code; of the built-in ones no other is imported, to start sooner.

    Raises:
        LoadError: a module fails to import, or declares no valid check, or two claim one code or slug.
    """
    found = _built_in_for_lint()
    for name in packages()[1:]:
        found += _walk(_imported(name), None)
    checks = sorted((each for each in found if each.of(Instrument.LINT)), key=lambda check: by_area(check.code))
    _require_unique(checks, lambda check: check.code)
    _require_unique(checks, lambda check: check.slug)
    return tuple(checks)


def _built_in_for_lint() -> list[Check]:
    """Load the built-in checks that read source, without the events of the watch where nobody has asked for them.

    The modules so made are forgotten: who loads the checks for more than lint gets them whole.
    """
    if f"{EVENTS}events" in sys.modules:
        return [*_walk(_imported(BUILT_IN), _reads_source)]
    before = set(sys.modules)
    try:
        with without_events():
            return [*_walk(_imported(BUILT_IN), _reads_source)]
    finally:
        _forget(before)


def _forget(before: set[str]) -> None:
    for name in [each for each in sys.modules if each.startswith(BUILT_IN) and each not in before]:
        del sys.modules[name]


def _reads_source(module: pkgutil.ModuleInfo) -> bool:
    """Whether a module has a facet of lint, by its text; taken to have one where there is no file to look into."""
    folder = getattr(module.module_finder, "path", None)
    try:
        with open(f"{folder}/{module.name.rpartition('.')[2]}.py", "rb") as file:  # noqa: PTH123 - hundreds of them
            return LINT in file.read()
    except OSError:
        return True


LINT = b"\n@lint"


def packages() -> tuple[str, ...]:
    """Return the names of the packages that hold checks, the built-in one first."""
    return (BUILT_IN, *sorted(entry.value for entry in importlib.metadata.entry_points(group=GROUP)))


def folders() -> list[str]:
    """Return the folders of these packages, found by their names: no module of them needs to be loaded."""
    found = [importlib.util.find_spec(name) for name in packages()]
    return [folder for spec in found if spec is not None for folder in spec.submodule_search_locations or ()]


@functools.cache
def load_check(origin: str) -> Check:
    """Load one check by its module.

    Raises:
        LoadError: the module fails to import, or declares no valid check.
    """
    return declared_check(_imported(origin), _package(origin))


def _package(origin: str) -> str:
    """Return the package of a module; what is installed is asked only for checks that are not built in."""
    if origin.startswith(f"{BUILT_IN}."):
        return BUILT_IN
    return next(each for each in packages() if origin.startswith(f"{each}."))


def find(checks: tuple[Check, ...], name: str) -> Check | None:
    """Return the check of this code or slug, whatever the case; None when there is none."""
    wanted = name.lower().replace("_", "-")
    return next((check for check in checks if wanted in (check.code.lower(), check.slug)), None)


def _require_unique(checks: list[Check], name: Callable[[Check], str]) -> None:
    taken: dict[str, Check] = {}
    for check in checks:
        if other := taken.get(name(check)):
            raise LoadError(f"{check.origin} and {other.origin} both claim {name(check)}")
        taken[name(check)] = check


def _require_causality(checks: list[Check]) -> None:
    """Refuse to supersede checks that are not there, that give way by their roles, or each other."""
    graph = {check.slug: {slug for each in _log_patterns(check) for slug in each.supersedes} for check in checks}
    weighty = {check.slug for check in checks if any(each.role is Role.CAUSE for each in _log_patterns(check))}
    for check in checks:
        if missing := (graph[check.slug] | {*check.supersedes}) - graph.keys():
            raise LoadError(f"{check.origin} supersedes {', '.join(sorted(missing))}, and there is no such check")
        if light := graph[check.slug] - weighty:
            raise LoadError(f"{check.origin} supersedes {', '.join(sorted(light))}, which no log names as a cause")
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as exc:
        origins = {check.slug: check.origin for check in checks}
        circle = " > ".join(origins[slug] for slug in exc.args[1])
        raise LoadError(f"checks supersede each other in a circle: {circle}") from None


def _log_patterns(check: Check) -> list[LogPattern]:
    return [facet.subject for facet in check.facets if isinstance(facet.subject, LogPattern)]


def _require_families(checks: list[Check]) -> None:
    """Refuse families of which two checks claim one member, or nobody claims one."""
    claimed: dict[enum.Enum, Check] = {}
    claims = [(check, facet.claim) for check in checks for facet in check.facets if facet.claim]
    for check, member in [(check, member) for check, claim in claims for member in claim.members]:
        if claimed.setdefault(member, check) is not check:
            raise LoadError(f"{claimed[member].origin} and {check.origin} both claim {member}")
    for family in {type(member) for member in claimed}:
        if missing := set(family) - claimed.keys():
            raise LoadError(f"no check claims {', '.join(sorted(map(str, missing)))} of {family.__module__}")


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name == BUILT_IN:
            raise LoadError("ddpdoctor runs from a checkout that is not installed: pip install -e .") from exc
        raise LoadError(f"the checks of {name} cannot be imported: {exc}") from exc
    except (Exception, SystemExit) as exc:  # whatever a third party's module raises, the user learns which one it was
        raise LoadError(f"the checks of {name} cannot be imported: {type(exc).__name__}: {exc}") from exc


def _walk(package: ModuleType, wanted: Callable[[pkgutil.ModuleInfo], bool] | None = None) -> Iterator[Check]:
    """Yield a check for each module of the package whose name does not begin with an underscore, or each wanted one."""
    for info in _modules(package):
        if wanted is None or wanted(info):
            yield declared_check(_imported(info.name), package.__name__)


def _modules(package: ModuleType) -> Iterator[pkgutil.ModuleInfo]:
    """Yield the modules of a package and of its folders, but those whose names begin with an underscore."""
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if info.name.rpartition(".")[2].startswith("_"):
            continue
        if info.ispkg:
            yield from _modules(_imported(info.name))
        else:
            yield info
