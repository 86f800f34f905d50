"""Calls a function once a module has been imported: of libraries that the watch does not import by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

Told = Callable[["ModuleType"], None]


class _Telling(Loader):
    """A module's own loader; then the function."""

    def __init__(self, loader: Loader, told: Told) -> None:
        self._loader = loader
        self._told = told

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._told(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


class _Finder(MetaPathFinder):
    """Finds one module, once."""

    def __init__(self, name: str, told: Told) -> None:
        self._name = name
        self._told = told

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - its signature
        target: ModuleType | None = None,  # noqa: ARG002 - its signature
    ) -> ModuleSpec | None:
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader, self._told)
        return spec


@dataclass(frozen=True, slots=True)
class Awaited:
    """A module that is waited for; it has the name that patches have for taking it back."""

    finder: _Finder | None

    def undo(self) -> None:
        """Wait no more."""
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)


def when_imported(name: str, told: Told) -> Awaited:
    """Call a function with a module: at once where it is imported, else right after it was."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        told(module)
        return Awaited(None)
    finder = _Finder(name, told)
    sys.meta_path.insert(0, finder)
    return Awaited(finder)
