"""The checkpoint's pickle names what torch.load with weights_only=True refuses.

## What happens

A pickle can import and call anything. With weights_only=True, torch.load allows tensors, plain containers and a short
list of names, and raises "Weights only load failed ... Unsupported global: GLOBAL argparse.Namespace was not an
allowed global by default" for others: arguments, NumPy scalars (a loss or a metric that was never turned into a
float), paths, enums, classes of a framework.

## How to be sure

`ddpdoctor inspect last.pt` lists what the file imports;
`torch.serialization.get_unsafe_globals_in_checkpoint("last.pt")` (torch 2.5 and later) lists the same names, without
loading. This check compares the names with the list of the installed torch, and runs nothing of the file. Names that
run commands or open files are an error: do not load such a file.

## How to mend it

Best first: save plain values, `float(loss)`, `vars(args)`, `str(path)`. For a file that exists, allow the very names
that it needs, when they are harmless classes: `torch.serialization.safe_globals([argparse.Namespace])` (torch 2.5 and
later). weights_only=False runs whatever the file says; use it only for files that you wrote yourself.

## Versions and sources

Holds for torch 2.6 and later, where weights_only=True is the default; before, the file loads, and what it names is
run. Seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.load" and "Serialization semantics".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Log,
    NotRun,
    Place,
    Record,
    Returned,
    Severity,
    log_pattern,
    probe,
)

from .._look import PICKLED, few, quoted, whole

if TYPE_CHECKING:
    from ddpdoctor.check import CheckpointFile, Jobs

AILMENT = Ailment("DDP809", Severity.WARNING)
DEFAULT_SINCE = (2, 6)
RUNNERS = {"commands", "nt", "os", "posix", "pty", "runpy", "socket", "subprocess", "sys", "webbrowser"}
KEYS = {"builtins.getattr", "builtins.setattr", "functools.partial", "operator.attrgetter", "operator.methodcaller"}
DTYPES = '*(type(numpy.dtype(code)) for code in numpy.typecodes["All"])'  # torch asks for the class of each dtype
CALLS = {"eval", "exec", "compile", "open", "__import__", "breakpoint", "input"}


@probe
def by_the_installed_torch(checkpoint: CheckpointFile, jobs: Jobs) -> Iterator[Finding]:
    """Ask the installed torch which of the names it refuses."""
    if whole(checkpoint).format not in PICKLED:
        return
    if checkpoint.modules and not _harmful(checkpoint.globals):
        raise NotRun("a pickled module is always refused: see pickled-module")
    outcome = jobs.run(refused, checkpoint.globals, ranks=1, backend=None)[0]
    if not isinstance(outcome, Returned):
        raise NotRun(f"the installed torch does not tell what it allows: {outcome}")
    version, names = outcome.value
    if harmful := _harmful(names):
        yield _harm(checkpoint, harmful)
    elif names:
        yield _refusal(checkpoint, names, version)


def refused(names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return torch's version and those of the names that it does not allow; runs in a rank, loads nothing."""
    import torch
    from torch import _weights_only_unpickler as allowing

    own = getattr(allowing, "_get_user_allowed_globals", dict)
    allowed = {*allowing._get_allowed_globals(), *own()}  # noqa: SLF001 - torch has no public list
    return str(torch.__version__), tuple(name for name in names if name not in allowed)


def _harmful(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        name
        for name in names
        if name.partition(".")[0] in RUNNERS or (name.startswith("builtins.") and name.rpartition(".")[2] in CALLS)
    )


def _harm(checkpoint: CheckpointFile, names: tuple[str, ...]) -> Finding:
    return Finding(
        f"the pickle of {checkpoint.path} names {few(names)}, which runs commands or opens files when it is loaded",
        (
            Evidence(
                f"its pickle imports {few(names, 8)}", "nothing that runs commands or opens files", checkpoint.path
            ),
        ),
        Fix("do not load it; fetch the weights as safetensors, from whom you trust"),
        place=Place(file=checkpoint.path),
        severity=Severity.ERROR,
    )


def _refusal(checkpoint: CheckpointFile, names: tuple[str, ...], version: str) -> Finding:
    default = tuple(int(part) for part in version.split(".")[:2]) >= DEFAULT_SINCE
    return Finding(
        f"torch {version} refuses the file with weights_only=True{', its default' if default else ''}: {few(names)}",
        (
            Evidence(
                f"its pickle names {few(names, 8)}",
                "tensors, plain containers and the names that torch allows",
                checkpoint.path,
            ),
        ),
        _fix(checkpoint.path, names),
        place=Place(file=checkpoint.path),
        severity=Severity.WARNING if default else Severity.NOTE,
    )


def _fix(path: str, names: tuple[str, ...]) -> Fix:
    if open_doors := [name for name in names if name in KEYS]:
        return Fix(f"save again with plain values, as in float(loss): who allows {few(open_doors)} allows everything")
    allowed = [*names, *([DTYPES] if "numpy.dtype" in names else [])]
    lines = [
        *(f"+ import {module}" for module in sorted({name.rpartition(".")[0] for name in names})),
        f"- ckpt = torch.load({quoted(path)})",
        f"+ with torch.serialization.safe_globals([{', '.join(allowed)}]):",
        f'+     ckpt = torch.load({quoted(path)}, map_location="cpu", weights_only=True)',
    ]
    return Fix(
        "save plain values, as in float(loss) and vars(args); for this file, allow the names", diff="\n".join(lines)
    )


NO_PICKLE = r"invalid load key|Unsupported operand (?:118|60|80)\b"
REFUSED = r"Weights only load failed"
BLOCKED = r"unsupported GLOBAL \S+ whose module \S+ is blocked"
GLOBAL = r"(?:Unsupported (?:global|class)|unsupported GLOBAL)[^\n]{0,12} ([A-Za-z_][\w.]*\.\w+)"


@log_pattern(REFUSED, context=(GLOBAL, NO_PICKLE))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name what the pickle asks for, where the message goes on so far; a file that is no pickle is another ailment."""
    if log.first(NO_PICKLE):
        return
    found = re.search(GLOBAL, record.text)
    name = found[1] if found else next((hit[1] for _, hit in log.find(GLOBAL)), "")
    module, _, attribute = name.rpartition(".")
    blocked = re.search(BLOCKED, record.text)
    allow = f"+import {module}\n+torch.serialization.add_safe_globals([{name}])\n torch.load(path)\nor\n"
    yield Finding(
        f"torch.load with weights_only=True refuses {name or 'what the pickle of the checkpoint names'}",
        (record.proof(match, "tensors and plain containers only"), *((record.proof(found),) if found else ())),
        Fix(
            f"allow {attribute or 'the classes that it needs'}; weights_only=False only for a file of your own",
            command="ddpdoctor inspect last.pt  # lists what the file would import",
            diff=(allow if module and not blocked else "")
            + "-torch.load(path)\n+torch.load(path, weights_only=False)  # runs whatever the file says",
        ),
        record.place,
        severity=Severity.ERROR,
    )
