"""What narrows an error that no check knows: whose it was, and what to run next."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpdoctor.findings import Fix
from ddpdoctor.logs.launchers import NONE, TORCHRUN
from ddpdoctor.logs.read.tracebacks import ERROR

if TYPE_CHECKING:
    from ddpdoctor.logs.answer import Unknown

IN_WORKER = "_worker_loop"
LATE = re.compile(r"CUDA error|HIP error|device-side assert|an illegal memory access")
PACKAGED = re.compile(r"(?:site|dist)-packages[/\\](?P<package>\w+)[/\\]?(?P<rest>.*)$")
PARTS_OF_TORCH = frozenset({"torch", "torchvision", "torchaudio"})
CHAINED_FROM = "The above exception was the direct cause of the following exception"
DISTRIBUTIONS = {
    "PIL": "pillow", "cv2": "opencv-python", "dateutil": "python-dateutil", "etcd": "python-etcd",
    "hydra": "hydra-core", "skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "PyYAML",
}  # fmt: skip
"""Packages that are installed under another name than they are imported by."""
IMPORTS = re.compile(r"(?:from|import) (?P<module>[A-Za-z]\w*(?:\.\w+)*)")
ASKS = re.compile(
    r"\b(?:[Pp]lease|must|should|has to|have to|needs? to|requires?|only supports?"
    r"|[Cc]annot|[Cc]an't|[Yy]ou (?:are|did))\b"
)
MANY = 8  # ranks that are listed


def met_by(unknown: Unknown) -> str:
    """Return which of the ranks that the log has lines of raised it, in words; empty where it tells no ranks."""
    ranks = unknown.ranks
    if not ranks or unknown.of_ranks < len(ranks):
        return ""
    listed = ", ".join(map(str, ranks[:MANY])) + (", ..." if len(ranks) > MANY else "")
    if len(ranks) == unknown.of_ranks > 1:
        return f"all {unknown.of_ranks} ranks that the log has lines of"
    if unknown.of_ranks > 1:
        alone = "rank " if len(ranks) == 1 else "ranks "
        return f"{alone}{listed} alone, among the {unknown.of_ranks} ranks that the log has lines of"
    return ""


def raised_in(unknown: Unknown) -> str:
    """Return which package raised it below the user's line, and where in it; empty where the user's own code did."""
    frame = unknown.raised_in
    if frame is None:
        return ""
    package = PACKAGED.search(frame.file)
    where = f"{package['package']}, {package['rest'] or frame.file}" if package else frame.file
    return f"{where}:{frame.line}, {frame.function}"


def doing(unknown: Unknown) -> str:
    """Return what the part of a package that raised it was doing; empty where that is not known."""
    from ddpdoctor.logs.unknown.parts import part_of
    from ddpdoctor.logs.unknown.said import of_words

    part = part_of(unknown.record)
    return part.doing if part and of_words(unknown.record) is None else ""


def root_of(unknown: Unknown) -> str:
    """Return the exception that the last one was raised from, and that one from in turn; empty where it has none."""
    head, chained, _ = unknown.record.text.partition(CHAINED_FROM)
    lines = [line.strip(" |") for line in head.splitlines()] if chained else []
    root = next((line for line in reversed(lines) if ERROR.match(line)), "")
    return "" if root == unknown.record.proof().seen else root


def next_step(unknown: Unknown) -> Fix:
    """Return what shows more of it than the log, in the words of whoever started the ranks."""
    from ddpdoctor.logs.unknown.families import of_family  # here, since most logs hold no such error
    from ddpdoctor.logs.unknown.parts import part_of
    from ddpdoctor.logs.unknown.said import of_words

    record = unknown.record
    if LATE.search(record.text):
        return Fix(
            "the line is one of a later call; this names the one that failed", "CUDA_LAUNCH_BLOCKING=1 torchrun ..."
        )
    if (
        fix := of_words(record, unknown.of_ranks) or of_family(record, package_of(unknown), root_of(unknown))
    ) is not None:
        return fix
    if not record.frames and part_of(record) is None:
        return Fix(
            "the log has no traceback of it; this keeps the output of each rank",
            "torchrun --log-dir=logs --redirects=3 --tee=3 ...; ddpdoctor explain logs"
            if unknown.launcher is TORCHRUN
            else f"{unknown.launcher.all_ranks} > all.log 2>&1; ddpdoctor explain all.log",
        )
    return _of_whom(unknown)


def _of_whom(unknown: Unknown) -> Fix:
    """Return what to run next, by the ranks that raised it; where these tell nothing, by what raised it."""
    launcher = unknown.launcher
    if launcher is NONE and not unknown.ranks:
        return _of_a_program(unknown)
    if IN_WORKER in unknown.record.text:
        return Fix(
            "a worker of the loader raised it: load in the rank itself, and stop at that line",
            f"DataLoader(..., num_workers=0)   # then: {launcher.one_rank}",
        )
    if unknown.ranks == (0,) and unknown.of_ranks > 1:
        return Fix(
            "rank 0 raised it: work that it does alone shows it with one rank as well",
            launcher.one_rank,
        )
    if unknown.ranks and len(unknown.ranks) < unknown.of_ranks:
        return Fix(
            "not all ranks raised it, so look at what differs there: its samples, files, variables, host",
            f"{launcher.watched}   # names the first failure, its step, and where the others were",
        )
    return _of_what(unknown)


def _of_what(unknown: Unknown) -> Fix:
    """Return what to run next, by the part of a package, or the package, that raised it."""
    from ddpdoctor.logs.unknown.parts import part_of

    launcher = unknown.launcher
    if (part := part_of(unknown.record)) is not None:
        return Fix(part.summary, part.command.replace("{launcher}", launcher.all_ranks))
    if caller := _caller_of_torch(unknown):
        return Fix(
            f"{caller} calls torch there, not your own code: see whether the installed versions fit each other",
            f"pip show torch {caller} | grep -E '^(Name|Version|Requires)'; {launcher.one_rank}",
        )
    if imported := IMPORTS.match(unknown.record.code):
        return _of_an_import(unknown, imported["module"])
    if (package := package_of(unknown)) and package not in PARTS_OF_TORCH:
        return _of_a_package(unknown, package)
    return Fix(
        "try it with one rank: where it shows there as well, a debugger stops at it",
        f"{launcher.one_rank}   # or: python -m pdb SCRIPT, where it runs without a launcher",
    )


def _of_a_package(unknown: Unknown, package: str) -> Fix:
    """Return what to do where a package raised it: what it asks for, or what else can be at fault."""
    from ddpdoctor.logs.unknown.message import message

    command = f"{_version_of(package)}; {unknown.launcher.one_rank}"
    if ASKS.search(message(unknown.record)) and _is_raised_by_its_line(unknown):
        return Fix(
            f"{package} says itself what it asks for: change the call at that line, or the settings that reach it",
            command,
        )
    return Fix(
        f"{package} raised it below that line: compare the call with what the installed version takes, and look for "
        "these words among its issues",
        command,
    )


def _is_raised_by_its_line(unknown: Unknown) -> bool:
    """Whether the innermost line raises it: else the words are those of what that line calls, as torch's."""
    text, error = unknown.record.text, unknown.record.error
    below = text[: text.rfind(f"\n{error}")].rpartition("\n  File ")[2].splitlines()[1:]
    return any(line.strip().startswith("raise") for line in below)


def _of_an_import(unknown: Unknown, module: str) -> Fix:
    """Return what to do where a module could not be imported: what raised it is not called by the script."""
    package = package_of(unknown)
    known = package or module.partition(".")[0]
    return Fix(
        f"{module} cannot be imported here: import it alone, which tells the same in one process, and see whether the "
        "installed packages fit each other",
        f"python -c 'import {module}'; pip check; {_version_of(known)}",
    )


def _caller_of_torch(unknown: Unknown) -> str:
    """Return the package that called torch, which raised it; empty where the user's own code did, or another raised."""
    found = [PACKAGED.search(frame.file) for frame in unknown.record.frames]
    packages = [each["package"] if each else "" for each in found]
    while len(packages) > 1 and packages[-1] == "torch" == packages[-2]:
        packages.pop()
    return packages[-2] if packages[-1:] == ["torch"] and len(packages) > 1 else ""


def _version_of(package: str) -> str:
    """Return the command that shows which version of a package is installed."""
    return f"pip show {DISTRIBUTIONS.get(package, package.replace('_', '-'))} | head -n 2"


def _of_a_program(unknown: Unknown) -> Fix:
    """Return what to do where neither a rank nor a launcher nor torch is in the log."""
    package = package_of(unknown)
    if package:
        return Fix(
            f"nothing in the log is of a distributed training; {package} raised it below that line",
            f"{_version_of(package)}; {NONE.one_rank}",
        )
    return Fix("nothing in the log is of a distributed training: a debugger stops at that line", NONE.one_rank)


def package_of(unknown: Unknown) -> str:
    """Return the name of the package that raised it, below the user's line if any; empty where that code did."""
    frames = unknown.record.frames
    frame = unknown.raised_in or (frames[-1] if frames and unknown.record.users is None else None)
    found = PACKAGED.search(frame.file) if frame else None
    return found["package"] if found else ""
