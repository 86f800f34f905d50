"""Imported by every Python process that ``ddpdoctor run`` starts: attaches the watch once torch is imported.

The sitecustomize that would have been imported without this one is imported too.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.util import find_spec

TYPE_CHECKING = False  # typing costs 10 ms in each process that is started
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs 10 ms in each process


class _Attaching(Loader):
    """torch's own loader; then the watch."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            from ddpdoctor.watch.rank.install import attach

            attach()
        except Exception as exc:  # noqa: BLE001 - training goes on, whatever is wrong with the watch
            os.write(2, f"ddpdoctor: this process is not watched: {type(exc).__name__}: {exc}\n".encode())

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


class _Finder(MetaPathFinder):
    """Finds torch, once."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - its signature
        target: ModuleType | None = None,  # noqa: ARG002 - its signature
    ) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Attaching(spec.loader)
        return spec


def _chain() -> None:
    """Import the sitecustomize that this one hides."""
    path = list(sys.path)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]  # noqa: PTH100 - as above
    this = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError as exc:
        if exc.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this
    finally:
        if HERE in path:
            path.remove(HERE)
        sys.path[:] = path


def _keep_files() -> None:
    """Note what this process does to files, in a rehearsal: from its first line, whether it uses torch or not."""
    try:
        from ddpdoctor.files.journal import note_changes
        from ddpdoctor.files.native_writers import note_native_writers
        from ddpdoctor.watch.settings import inherited

        settings = inherited()
        if settings is not None and settings.rehearsal is not None:
            note_native_writers(settings.session)
            note_changes(settings.session)
    except Exception as exc:  # noqa: BLE001 - another Python, say, which has no ddpdoctor
        os.write(2, f"ddpdoctor: the files of this process are not kept: {type(exc).__name__}: {exc}\n".encode())


if "DDPDOCTOR_WATCH" in os.environ:
    sys.meta_path.insert(0, _Finder())
    if '"rehearsal": {' in os.environ["DDPDOCTOR_WATCH"]:
        _keep_files()
_chain()
