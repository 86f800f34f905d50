"""The user's own things: ``TARGET:NAME``, loaded and called in a rank, and whose error it is when that fails."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpdoctor.check import BadTarget
from ddpdoctor.probe.outcome import Died, Frame, Outcome, Raised, Stuck

MAIN = "ddpdoctor_target"  # not __main__: what stands under that guard is a training, and is not run


class MissingNameError(Exception):
    """The target's module has no such name; the text says so."""


@dataclass(frozen=True, slots=True)
class Target:
    """A factory of the user's: ``module`` is a file or a dotted module, ``name`` a callable in it."""

    module: str
    name: str

    def __str__(self) -> str:
        """Give the text that the user typed."""
        return f"{self.module}:{self.name}"

    @property
    def is_file(self) -> bool:
        """Tell a path from a dotted module."""
        return self.module.endswith(".py") or os.sep in self.module


def parse(text: str) -> Target:
    """Read ``TARGET:NAME``.

    Raises:
        BadTarget: it is not of that form, or the file or module is not there.
    """
    module, colon, name = text.rpartition(":")
    if not (colon and module and name.isidentifier()):
        raise BadTarget(f"{text!r} is not of the form FILE.py:NAME or MODULE:NAME")
    target = Target(module, name)
    if target.is_file:
        if not Path(module).is_file():
            raise BadTarget(f"{text}: there is no file {module}")
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


def load(target: Target) -> Any:
    """Import the target's module in a rank and give the named object.

    Raises:
        MissingNameError: the module has no such name.
        Exception: whatever the user's module raises.
    """
    if target.is_file:
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


def build(target: Target, rank: int, world_size: int) -> Any:
    """Load the factory and call it, with ``rank`` and ``world_size`` if it takes them; a value is given as it is.

    Raises:
        MissingNameError: the module has no such name.
        Exception: whatever the user's code raises.
    """
    factory = load(target)
    if not callable(factory) or _is_built(factory):
        return factory
    try:
        accepted = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        accepted = {}  # type: ignore[assignment]  # a C callable without a signature takes nothing
    offered = {"rank": rank, "world_size": world_size}
    return factory(**{name: value for name, value in offered.items() if name in accepted})


def _is_built(value: Any) -> bool:
    """Tell a module or a loader that is itself callable, or needs no call, from a factory."""
    import torch

    return isinstance(value, (torch.nn.Module, torch.Tensor, torch.utils.data.DataLoader))


def own_frames(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Keep the user's own frames: no line of this package, of the standard library or of installed packages."""
    return tuple(frame for frame in frames if not _is_foreign(frame.file))


def _is_foreign(file: str) -> bool:
    here = str(Path(__file__).resolve().parents[1]) + os.sep
    library = sysconfig.get_paths()["stdlib"] + os.sep
    return (
        file.startswith(("<", here, library))
        or f"{os.sep}site-packages{os.sep}" in file
        or f"{os.sep}dist-packages{os.sep}" in file
    )


def blame(option: str, target: Target, outcomes: tuple[Outcome, ...]) -> None:
    """Turn the failure of a rank that was busy with the user's factory into one clear line.

    ``option`` is the one that named the target, such as ``--model``.

    Raises:
        BadTarget: a rank raised, died or was stuck.
    """
    for outcome in sorted(outcomes, key=lambda outcome: isinstance(outcome, Stuck)):
        where = f"{option} {target}, rank {outcome.rank}"
        match outcome:
            case Raised(kind="MissingNameError", message=message):
                raise BadTarget(f"{option}: {message}")
            case Raised(kind=kind, message=message, frames=frames):
                text = " ".join(message.split())
                raise BadTarget(f"{where}: your code raised {kind}: {text}{_at(own_frames(frames)[::-1])}")
            case Died(signal=None, exitcode=code):
                raise BadTarget(f"{where}: your code ended the process with exit status {code}")
            case Died(signal=number):
                raise BadTarget(f"{where}: the process died by signal {number} in your code")
            case Stuck(stack=stack):
                raise BadTarget(f"{where}: your code did not return in time{_at(own_frames(stack))}")
            case _:
                pass


def _at(frames: tuple[Frame, ...]) -> str:
    """Name the innermost of the user's frames, then its callers."""
    lines = [f"{frame.file}:{frame.line} in {frame.function}" for frame in frames[:3]]
    return f" (at {', called from '.join(lines)})" if lines else ""
