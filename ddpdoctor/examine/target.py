"""The user's own things: ``TARGET:NAME``, loaded and called in a rank."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpdoctor.facets import BadTarget
from ddpdoctor.files.journal import FILES, note_changes
from ddpdoctor.files.native_writers import note_native_writers
from ddpdoctor.source.module_names import functions, lacks
from ddpdoctor.suggest import did_you_mean, why_no_file

MAIN = "ddpdoctor_target"  # not __main__: what stands under that guard is a training, and is not run


class MissingNameError(Exception):
    """The target's module has no such name; the text says so."""


class ExitedError(Exception):
    """The user's code asked for the end of the process; the text is the exit status."""


@dataclass(frozen=True, slots=True)
class Target:
    """A factory of the user's: ``module`` is a file or a dotted module, ``name`` a callable in it."""

    module: str
    name: str

    def __str__(self) -> str:
        """Return the text that the user typed."""
        return f"{self.module}:{self.name}"

    @property
    def is_file(self) -> bool:
        """Whether the target is a path, and not a dotted module."""
        return self.module.endswith(".py") or os.sep in self.module


def parse(text: str) -> Target:
    """Read ``TARGET:NAME``.

    Raises:
        BadTarget: it is not of that form, the file or module is not there, or the file has no such name on any way.
    """
    module, colon, name = text.rpartition(":")
    if not (colon and module and name.isidentifier()):
        raise BadTarget(f"{text!r} is not of the form FILE.py:NAME or MODULE:NAME")
    target = Target(module, name)
    if target.is_file:
        if not Path(module).is_file():
            raise BadTarget(why_no_file(module))
        _demand(module, name)
        return Target(str(Path(module).resolve()), name)
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        found = None
    finally:
        sys.path.pop(0)
    if found is None:
        raise BadTarget(f"{text}: there is no module {module} in {Path.cwd()} or among the installed packages")
    return target


def _demand(module: str, name: str) -> None:
    """Refuse a name that the file certainly lacks, before a rank is started for it."""
    try:
        with tokenize.open(module) as file:
            text = file.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return  # the rank that imports it says why
    if lacks(text, name):
        there = functions(text)
        meant = did_you_mean(name, there) or f"; its functions: {', '.join(there) or 'none'}"
        raise BadTarget(f"{module} has no {name!r}{meant}")


def load(target: Target) -> Any:
    """Import the target's module in a rank and return the named object.

    Raises:
        MissingNameError: the module has no such name.
        Exception: whatever the user's module raises.
    """
    _keep_files()
    if target.is_file:
        sys.argv = [target.module]
        sys.path.insert(0, str(Path(target.module).parent))
        spec = importlib.util.spec_from_file_location(MAIN, target.module)
        if spec is None or spec.loader is None:
            raise MissingNameError(f"{target.module} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[MAIN] = module
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, str(Path.cwd()))
        module = importlib.import_module(target.module)
    try:
        return getattr(module, target.name)
    except AttributeError:
        functions = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        raise MissingNameError(
            f"{target.module} has no {target.name!r}; its functions: {', '.join(functions) or 'none'}"
        ) from None


def _keep_files() -> None:
    """Let the files be put back that the user's code changes from now on: a script can train as it is imported."""
    if folder := os.environ.pop(FILES, None):
        note_native_writers(folder)
        note_changes(folder)


def build(target: Target, rank: int, world_size: int) -> Any:
    """Load the factory and call it, with ``rank`` and ``world_size`` if it takes them; a value is given as it is.

    Raises:
        MissingNameError: the module has no such name.
        ExitedError: the user's code called ``sys.exit``, or a parser of arguments did.
        Exception: whatever the user's code raises.
    """
    try:
        return _built(target, {"rank": rank, "world_size": world_size})
    except SystemExit as exc:
        if exc.code is not None and not isinstance(exc.code, int):
            print(exc.code, file=sys.stderr)  # noqa: T201 - what the interpreter does with a text
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        raise ExitedError(str(status)).with_traceback(exc.__traceback__) from None


def _built(target: Target, offered: dict[str, int]) -> Any:
    factory = load(target)
    if not callable(factory) or _is_built(factory):
        return factory
    try:
        accepted = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        accepted = {}  # type: ignore[assignment]  # a C callable without a signature takes nothing
    return factory(**{name: value for name, value in offered.items() if name in accepted})


def _is_built(value: Any) -> bool:
    """Whether this is no factory but a module or a loader, which needs no call."""
    import torch

    return isinstance(value, (torch.nn.Module, torch.Tensor, torch.utils.data.DataLoader))
