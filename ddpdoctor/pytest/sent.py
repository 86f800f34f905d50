"""What of a test travels from pytest's process to its ranks."""

from __future__ import annotations

import importlib
import importlib.util
import marshal
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class SentTest:
    """A test function, its arguments, and what it is called in.

    ``code`` is the marshalled code that pytest has compiled, whose asserts say what they compared, and ``modules`` the
    names that this code has for modules of pytest; None for a function that is more than its code. ``arguments`` are
    pickled for themselves, since their classes can be the test's, which is loaded first.
    """

    file: str
    module: str
    qualname: str
    code: bytes | None
    modules: dict[str, str]
    arguments: bytes
    folder: str
    path: tuple[str, ...]
    backend: str | None


def sent(function: Callable[..., object], arguments: bytes, folder: str, backend: str | None) -> SentTest:
    """Describe a test function."""
    plain = isinstance(function, FunctionType) and function.__closure__ is None and not hasattr(function, "__wrapped__")
    names = getattr(function, "__globals__", {})
    return SentTest(
        file=str(function.__code__.co_filename) if isinstance(function, FunctionType) else "",
        module=function.__module__,
        qualname=function.__qualname__,
        code=marshal.dumps(function.__code__) if plain and isinstance(function, FunctionType) else None,
        modules={
            name: value.__name__ for name, value in names.items() if name[:1] == "@" and isinstance(value, ModuleType)
        },
        arguments=arguments,
        folder=folder,
        path=tuple(sys.path),
        backend=backend,
    )


def received(test: SentTest) -> tuple[Callable[..., object], dict[str, Any]]:
    """Return the function and its arguments in a rank."""
    sys.path[:] = test.path
    module = _module(test.module, test.file)
    *owners, name = test.qualname.split(".")
    owner: Any = module
    for each in owners:
        owner = getattr(owner, each)
    function = getattr(owner, name)
    if test.code is not None:
        module.__dict__.update({name: importlib.import_module(value) for name, value in test.modules.items()})
        code: CodeType = marshal.loads(test.code)  # noqa: S302 - made by the pytest process that started this rank
        defaults, only = function.__defaults__, function.__kwdefaults__
        function = FunctionType(code, module.__dict__, name, defaults)
        function.__kwdefaults__ = only
    if owners:
        function = function.__get__(owner())
    return function, pickle.loads(test.arguments)  # noqa: S301 - as above


def _module(name: str, file: str) -> ModuleType:
    """Import the module by its name, if that leads to its file; pytest can load files that no name leads to."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        module = None
    if module is not None and (not file or Path(module.__file__ or "").resolve() == Path(file).resolve()):
        return module
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
