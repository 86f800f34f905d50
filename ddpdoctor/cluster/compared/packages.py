"""The versions of the packages that the training's own files import, so that hosts can compare them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from ddpdoctor.cluster.compared.imported import imports, is_beside, scripts

NOT_INSTALLED = "not installed"
"""In the place of a version: an import that nothing guards, and no such package."""
NO_VERSION = "there"
"""In the place of a version: it can be imported, and no distribution says which it is."""
UNDER = {
    "transformers": ("accelerate", "tokenizers"),
    "lightning": ("pytorch-lightning", "torchmetrics"),
    "pytorch_lightning": ("torchmetrics",),
    "datasets": ("pyarrow",),
}
"""What a package hands the model, the batches or the communication of the ranks to, without the script's naming it."""
COMPARED_ANYWAY = {"torch", "ddpdoctor"}
FILES, MOST = 200, 100


def packages_imported(named: Iterable[str]) -> dict[str, str]:
    """Return the version of each installed package that the named files import, or the files beside them that these do.

    What is not installed at all is told where its import stands on the module's own level, outside of any ``try``.
    """
    imported: dict[str, bool] = {}
    for path in scripts(named):
        for name, is_certain in _imported(path).items():
            imported[name] = imported.get(name, False) or is_certain
    found: dict[str, str] = {}
    for name, is_certain in sorted(imported.items())[:MOST]:
        if name not in COMPARED_ANYWAY:
            found |= _versions(name, is_certain=is_certain)
            found |= {each: version for each in UNDER.get(name, ()) if (version := _version(each))}
    return found


def _versions(name: str, *, is_certain: bool) -> dict[str, str]:
    """Return the version of what an import means, by the name under which it is installed."""
    if version := _version(name):
        return {_normal(name): version}
    if told := {each: version for each in _owners().get(name, ()) if (version := _version(each))}:
        return {_normal(each): version for each, version in told.items()}
    if _is_there(name):
        return {_normal(name): NO_VERSION}
    return {_normal(name): NOT_INSTALLED} if is_certain else {}


@cache
def _owners() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _imported(script: Path) -> dict[str, bool]:
    """Return the packages that a script imports, and the modules beside it; and whether each is for certain."""
    found: dict[str, bool] = {}
    waiting, seen = [(script, True)], {script}
    while waiting and len(seen) <= FILES:
        path, is_certain = waiting.pop()
        for name, is_always in imports(path):
            top = name.partition(".")[0]
            beside = [each for each in _beside(script.parent, name) if each not in seen]
            if is_beside(script, top):
                waiting += [(each, is_certain and is_always) for each in beside]
                seen.update(beside)
            elif top not in sys.stdlib_module_names:
                found[top] = found.get(top, False) or (is_certain and is_always)
    return found


def _beside(folder: Path, name: str) -> Iterator[Path]:
    """Yield the files that an import of a module beside the script runs."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        at = folder.joinpath(*parts[:count])
        yield from (each for each in (at.with_suffix(".py"), at / "__init__.py") if each.is_file())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):
        return True  # it is there, and broken: its own error tells


def _normal(name: str) -> str:
    """Return a distribution's name as pip spells it (packaging.python.org, "Names and normalization")."""
    return re.sub(r"[-_.]+", "-", name).lower()
