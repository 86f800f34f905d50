"""Versions of what training stands on, found without importing any of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import runpy
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FRAMEWORKS = (
    "accelerate", "deepspeed", "horovod", "lightning", "numpy", "pytorch-lightning", "ray", "torchdata", "torchvision",
    "transformers",
)  # fmt: skip

TORCH_ADVICE = (
    "torch is not installed: pip install torch (the command for each version of CUDA: "
    "https://pytorch.org/get-started/locally/)"
)
PT_DYNAMIC, DT_RPATH, DT_RUNPATH = 2, 15, 29  # elf(5)


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library or a distribution that brings one."""

    path: str
    version: str


@dataclass(frozen=True, slots=True)
class Versions:
    """``torch_cuda`` is the CUDA that torch is built for, None for a CPU build; ``torch`` None where it is missing.

    ``nccl_pinned`` tells that torch's own NCCL is found before any other on LD_LIBRARY_PATH.
    """

    python: str
    system: str
    torch: str | None
    torch_cuda: str | None
    torch_hip: str | None
    torch_path: str | None
    nccl: tuple[Library, ...]
    nccl_pinned: bool
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
        nccl_pinned=path is not None and has_rpath(Path(path) / "lib/libtorch_cuda.so"),
        frameworks={name: version for name in FRAMEWORKS if (version := _version(name)) is not None},
    )


def has_torch() -> bool:
    """Whether torch is installed for this Python; it is not imported."""
    return _torch_folder() is not None


def _torch_folder() -> Path | None:
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _torch() -> tuple[Mapping[str, str | None], str | None]:
    """Run torch/version.py, a file of constants, alone."""
    folder = _torch_folder()
    if folder is None:
        return {}, None
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
    """Return each NCCL that could be loaded: the wheel's, and those on LD_PRELOAD and LD_LIBRARY_PATH."""
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


def has_rpath(path: Path) -> bool:
    """Whether a 64-bit ELF library has DT_RPATH, which ld.so(8) follows before LD_LIBRARY_PATH, and no DT_RUNPATH.

    torch's CUDA wheels have had it since 2022 (pytorch/builder, pull request 1150); a build of one's own has not.
    """
    try:
        with path.open("rb") as file:
            header = file.read(64)
            if header[:6] != b"\x7fELF\x02\x01":
                return False
            (start,), (size, count) = struct.unpack_from("<Q", header, 32), struct.unpack_from("<HH", header, 54)
            file.seek(start)
            segments = [file.read(size) for _ in range(count)]
            tags: set[int] = set()
            for segment in segments:
                if struct.unpack_from("<I", segment)[0] == PT_DYNAMIC:
                    file.seek(struct.unpack_from("<Q", segment, 8)[0])
                    entries = file.read(struct.unpack_from("<Q", segment, 32)[0])
                    tags |= {tag for tag, _ in struct.iter_unpack("<qQ", entries[: len(entries) // 16 * 16])}
    except (OSError, struct.error):
        return False
    return DT_RPATH in tags and DT_RUNPATH not in tags
