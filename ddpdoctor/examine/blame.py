"""Whose error it is when the user's own code fails in a rank."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.facets import BadTarget
from ddpdoctor.host.stack import Frame
from ddpdoctor.jobs.outcome import Died, Outcome, Raised, Stuck

if TYPE_CHECKING:
    from ddpdoctor.examine.target import Target

LAST_LINES, MOST_PRINTED = 3, 300  # lines, and characters, of what the user's code printed
UNGUARDED = 'move that under `if __name__ == "__main__":`, which an import does not run'


def own_frames(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Keep the user's own frames: no line of this package, of the standard library or of installed packages."""
    return tuple(frame for frame in frames if not _is_foreign(frame.file))


def own_files(before: set[str]) -> tuple[str, ...]:
    """Return the name of the files of the user's modules among those that were imported since then."""
    new = [vars(module) for name, module in list(sys.modules.items()) if name not in before]
    files = {str(each.get("__file__") or "") for each in new}
    frames = tuple(Frame(os.path.realpath(file), 0, "") for file in sorted(files) if file.endswith(".py"))
    return tuple(frame.file for frame in own_frames(frames))


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
    for outcome in sorted(outcomes, key=_follows):
        where = f"{option} {target}, rank {outcome.rank}"
        match outcome:
            case Raised(kind="MissingNameError", message=message):
                raise BadTarget(f"{option}: {message}")
            case Raised(kind="ExitedError", message=status, output=output, frames=frames):
                own = own_frames(frames)[::-1]
                text = f"{where}: your code ended the process with exit status {status}{_at(own)}{_printed(output)}"
                imported = any(frame.function == "<module>" for frame in own)
                raise BadTarget(f"{text}; {UNGUARDED}" if imported else text)
            case Raised(kind=kind, message=message, frames=frames):
                text = " ".join(message.split())
                raise BadTarget(f"{where}: your code raised {kind}: {text}{_at(own_frames(frames)[::-1])}")
            case Died(signal=None, exitcode=code, output=output):
                raise BadTarget(f"{where}: your code ended the process with exit status {code}{_printed(output)}")
            case Died(signal=number, output=output):
                raise BadTarget(f"{where}: the process died by signal {number} in your code{_printed(output)}")
            case Stuck(stack=stack):
                raise BadTarget(f"{where}: your code did not return in time{_at(own_frames(stack))}")
            case _:
                pass


def _follows(outcome: Outcome) -> int:
    """Order what ranks came to: one that waits, or fails in no line of the user's, follows from what another did."""
    if isinstance(outcome, Raised):
        is_own = outcome.kind in {"MissingNameError", "ExitedError"} or bool(own_frames(outcome.frames))
        return 0 if is_own else 1
    return 2 if isinstance(outcome, Stuck) else 0


def _at(frames: tuple[Frame, ...]) -> str:
    """Return the name of the innermost of the user's frames, then its callers."""
    lines = [f"{frame.file}:{frame.line} in {frame.function}" for frame in frames[:3]]
    return f" (at {', called from '.join(lines)})" if lines else ""


def _printed(output: str) -> str:
    """Return the end of what a rank printed, in one line; of a parser of arguments the error alone."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()][-LAST_LINES:]
    if lines and re.match(r"\S+: error: ", lines[-1]):
        del lines[:-1]
    return f"; it printed: {' / '.join(lines)[-MOST_PRINTED:]}" if lines else ""
