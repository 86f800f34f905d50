"""Versions of what training stands on, found without importing any of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FRAMEWORKS = (
    "accelerate", "deepspeed", "horovod", "lightning", "numpy", "pytorch-lightning", "ray", "torchdata", "torchvision",
    "transformers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library or a distribution that brings one."""

    path: str
    version: str


@dataclass(frozen=True, slots=True)
class Versions:
    """``torch_cuda`` is the CUDA that torch is built for, None for a CPU build; ``torch`` None where it is missing."""

    python: str
    system: str
    torch: str | None
    torch_cuda: str | None
    torch_hip: str | None
    torch_path: str | None
    nccl: tuple[Library, ...]
    frameworks: Mapping[str, str]


def gather_versions(environ: Mapping[str, str]) -> Versions:
    """Look them up; ``environ`` says where the loader looks for libraries first."""
    module, path = _torch()
    return Versions(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        torch=module.get("__version__"),
        torch_cuda=module.get("cuda"),
        torch_hip=module.get("hip"),
        torch_path=path,
        nccl=_nccl(environ),
        frameworks={name: version for name in FRAMEWORKS if (version := _version(name)) is not None},
    )


def _torch() -> tuple[Mapping[str, str | None], str | None]:
    """Run torch/version.py, a file of constants, alone."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        return {}, None
    folder = Path(spec.origin).parent
    try:
        values = runpy.run_path(str(folder / "version.py"))
    except Exception:  # noqa: BLE001 - a torch that is broken there is told by the job that imports it
        return {"__version__": _version("torch")}, str(folder)
    known = {name: values.get(name) for name in ("__version__", "cuda", "hip")}
    return {name: None if value is None else str(value) for name, value in known.items()}, str(folder)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _nccl(environ: Mapping[str, str]) -> tuple[Library, ...]:
    """Give each NCCL that could be loaded: the wheel's, and those on LD_PRELOAD and LD_LIBRARY_PATH."""
    found = [
        Library(name, version)
        for name in ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
        if (version := _version(name)) is not None
    ]
    candidates = [Path(entry) for entry in environ.get("LD_PRELOAD", "").replace(":", " ").split() if "nccl" in entry]
    folders = filter(None, environ.get("LD_LIBRARY_PATH", "").split(":"))
    candidates += [Path(folder) / "libnccl.so.2" for folder in folders]
    for path in candidates:
        if path.is_file():
            real = path.resolve()
            version = real.name.partition(".so.")[2] or "unknown"
            if str(real) not in {library.path for library in found} and not str(real).startswith(sys.prefix):
                found.append(Library(str(real), version))
    return tuple(found)
