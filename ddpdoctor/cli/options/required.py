"""What a command needs to be there before it begins: the command that it is to start, and torch."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ddpdoctor.cli.options.values import known_names
from ddpdoctor.facets import BadTarget
from ddpdoctor.host.versions import TORCH_ADVICE, has_torch
from ddpdoctor.report.whole_file import is_stream
from ddpdoctor.suggest import did_you_mean, why_no_file

INTERPRETERS = {".py": ("python", "python3"), ".sh": ("bash", "sh")}
LAUNCHERS = "accelerate composer deepspeed fabric horovodrun lightning mpirun python python3 srun torchrun".split()


def require_command(command: Sequence[str], verb: str) -> None:
    """Refuse what no shell would find; ``verb`` is what the command was given to, ``check`` or ``run``.

    Raises:
        BadTarget: there is no such command; the text says what was meant, where that can be told.
    """
    if shutil.which(command[0]) is None:
        raise BadTarget(_why_not(command[0], command, verb))


def require_torch(what: str) -> None:
    """Refuse what needs torch, such as an option, where torch is not installed.

    Raises:
        BadTarget: it is not installed; the text says how to install it.
    """
    if not has_torch():
        raise BadTarget(f"{what} needs torch, and {TORCH_ADVICE}")


def require_writable(option: str, path: Path) -> None:
    """Refuse a file that could not be written once the work is done.

    Raises:
        BadTarget: there is no such folder, or no file can be made in it.
    """
    folder = path.absolute().parent
    if not folder.is_dir():
        raise BadTarget(f"{option} {path}: there is no folder {path.parent}")
    if is_stream(path):
        return
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as exc:
        raise BadTarget(f"{option} {path}: no file can be made in {path.parent}: {exc.strerror}") from None


def _why_not(word: str, command: Sequence[str], verb: str) -> str:
    path = Path(word)
    if path.is_file():
        return f"{word} is a file, not a command: {_advice(path, command, verb)}"
    if os.sep in word or path.suffix in INTERPRETERS or path.exists():
        return why_no_file(path)
    if word == "torchrun" and not has_torch():
        return f"torchrun comes with torch, and {TORCH_ADVICE}"
    if verb == "check" and word in known_names():
        return f"there is no command {word}; did you mean ddpdoctor check --only {word}?"
    if (beside := Path(sys.executable).with_name(word)).is_file():
        return f"{word} is not on the PATH; it is {beside}"
    return f"there is no command {word}{did_you_mean(word, LAUNCHERS)}"


def _advice(path: Path, command: Sequence[str], verb: str) -> str:
    """Return the command lines that do something with a file of the user's."""
    interpreter = next(filter(shutil.which, INTERPRETERS.get(path.suffix, ())), "")
    if not (interpreter or os.access(path, os.X_OK)):
        return "it is not executable"
    started = shlex.join([interpreter, *command] if interpreter else [f".{os.sep}{path}", *command[1:]])
    if verb == "check" and path.suffix == ".py":
        return (
            f"`ddpdoctor check -- {started}` rehearses the training, "
            f"`ddpdoctor check --model {path}:NAME` examines the model that the function NAME returns"
        )
    return f"ddpdoctor {verb} -- {started}"
