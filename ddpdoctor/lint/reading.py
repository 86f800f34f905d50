"""Reads a file as what its name says that it is, or says in one line why it cannot be read."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from typing import TYPE_CHECKING

from ddpdoctor.source.launching.launch_script import LaunchScript
from ddpdoctor.source.launching.script_variables import DOCKERFILE, EDITOR, MAKEFILE, SHELL, YAML
from ddpdoctor.source.script import Script
from ddpdoctor.source.text.notebook import read_notebook
from ddpdoctor.source.text.syntax import NO_PYTHON

if TYPE_CHECKING:
    from pathlib import Path

CONCERNS_US = re.compile(rb"torch|lightning|accelerate|--local_rank|TrainingArguments|ignite")
ABOUT = re.compile(
    rb"distributed|DataParallel|DistributedSampler|local_rank|LOCAL_RANK|DataLoader|CUDA_VISIBLE|accelerate|lightning"
    rb"|torchrun|mpirun|TorchTrainer|horovod|deepspeed\.init|main_process|download=True|torch\.(?:save|load)\(|SummaryWriter\("
    rb"|mkdir\(|makedirs\(|download_url|download_and_extract|urlretrieve|process_zero|TrainingArguments"
    rb"|\.backward\(|all_reduce|get_rank|world_size|set_epoch|barrier\(|_loader\b|\bloader\b|dataloader\b"
)
"""A file needs both to be parsed: no check finds anything in one that has neither."""
LAUNCHES = re.compile(
    rb"torchrun|torch\.distributed|accelerate|deepspeed|srun|mpirun|mpiexec|SBATCH|docker|NCCL_|MASTER_|CUDA_VIS|WORLD_SIZE"
    rb"|LOCAL_RANK|OMP_NUM|nvidia|PyTorchJob|distributed_type"
)
"""The same of a file that starts trainings."""
PYTHON, NOTEBOOK = "Python", "notebook"
KINDS = (
    (PYTHON, re.compile(r"\.py$")),
    (SHELL, re.compile(r"\.(?:sh|bash|sbatch|slurm|slrm|job)$")),
    (DOCKERFILE, re.compile(r"(?:^|[./-])(?:Dockerfile|Containerfile)(?:[.-][\w.-]+)?$|\.dockerfile$", re.IGNORECASE)),
    (NOTEBOOK, re.compile(r"\.ipynb$")),
    (YAML, re.compile(r"\.ya?ml$")),
    (MAKEFILE, re.compile(r"^(?:GNU)?[Mm]akefile$|\.mk$")),
    (EDITOR, re.compile(r"^launch\.json$")),
)
MOST_BYTES = 5_000_000  # what is longer was written by a machine, and takes seconds


class CannotReadError(Exception):
    """A file that cannot be looked at; the text says why."""


def read(path: Path) -> bytes:
    """Return a file's contents.

    Raises:
        CannotReadError: the system refuses it.
    """
    try:
        return path.read_bytes()
    except OSError as exc:
        raise CannotReadError(f"{path}: cannot be read: {exc.strerror}") from None


def kind(name: str) -> str | None:
    """Return what a file of this name is; None for one that is not looked at in folders."""
    if name.endswith(".py"):
        return PYTHON  # nearly all files
    base = name.replace("\\", "/").rpartition("/")[2]
    return next((each for each, pattern in KINDS if pattern.search(base)), None)


def concerns_us(name: str, data: bytes) -> bool:
    """Whether a check could find anything in a file of this name and these contents."""
    if (kind(name) or PYTHON) in {PYTHON, NOTEBOOK}:
        return bool(CONCERNS_US.search(data) and ABOUT.search(data))
    return bool(LAUNCHES.search(data)) and len(data) <= MOST_BYTES and b"\0" not in data


def source(name: str, data: bytes) -> Script | LaunchScript | None:
    """Return what these bytes hold, as the name says; None where no check could find anything in it.

    A name that says nothing is that of a Python file. A launch script that is not understood says nothing, and is no
    fault: shells accept more than is read here. So is a notebook.

    Raises:
        CannotReadError: it is no Python of the version that runs, or too large.
    """
    held = kind(name) or PYTHON
    if not concerns_us(name, data):
        return None
    if held == PYTHON:
        return _script(name, data)
    if held == NOTEBOOK:
        return _notebook(name, data)
    try:
        return LaunchScript(name, data.decode(), held)
    except UnicodeDecodeError:
        return None


def _notebook(name: str, data: bytes) -> Script | None:
    """Return a notebook as one module; None where it is none, or has a cell that is no Python: others write them."""
    cells = read_notebook(data.decode(errors="replace"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Script(name, cells.text, ast.parse(cells.text), cells) if cells is not None else None
    except NO_PYTHON:
        return None


def _script(name: str, data: bytes) -> Script:
    if len(data) > MOST_BYTES:
        raise CannotReadError(f"{name}: cannot parse, because it has {len(data):,} bytes, more than {MOST_BYTES:,}")
    text = decoded(name, data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes: not ours to tell
            return Script(name, text, ast.parse(text))
    except SyntaxError as exc:
        where = f"{name}:{exc.lineno}" if exc.lineno else name
        raise CannotReadError(f"{where}: cannot parse, because of {_told(exc, text)}") from None
    except ValueError as exc:
        raise CannotReadError(f"{name}: cannot parse, because {exc}") from None
    except (RecursionError, MemoryError):
        raise CannotReadError(f"{name}: cannot parse, because it is nested too deeply") from None


def decoded(name: str, data: bytes) -> str:
    """Return the text, by the encoding that the file declares.

    Raises:
        CannotReadError: the bytes are not of this encoding.
    """
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        return data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as exc:
        why = f"byte {exc.start} is not {exc.encoding}" if isinstance(exc, UnicodeDecodeError) else str(exc)
        raise CannotReadError(f"{name}: cannot parse, because {why}") from None


def _told(exc: SyntaxError, text: str) -> str:
    """Return what is wrong, and of Python 2 that it is that."""
    if re.search(r"^\s*print\s+[^(\s=]|^\s*except\s+[\w.]+\s*,\s*\w+\s*:", text, re.MULTILINE):
        return f"Python 2 syntax: {exc.msg}"
    return f"a syntax error: {exc.msg}"
