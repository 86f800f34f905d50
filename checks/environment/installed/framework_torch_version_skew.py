"""Installed code relies on a part of torch that the installed torch does not have.

## What happens

Frameworks reach into torch's private names (`_use_replicated_tensor_module`, `_sync_params`), and torch changes them
from one release to the next: "'MMDistributedDataParallel' object has no attribute '_use_replicated_tensor_module'",
"cannot import name 'log' from 'torch.distributed.elastic.agent.server.api'". Behaviour changes too: SyncBatchNorm of
torch 1.3 and older wants "at least 3D input (got 2D input)", where BatchNorm1d, which it replaced, takes two
dimensions. What a process group is made from changes as well: "TypeError: __init__(): incompatible constructor
arguments", raised within torch's own `new_group`, with torch._C._distributed_c10d.ProcessGroup among the types.

## How to be sure

The missing name is torch's; the traceback shows who asks for it, an installed package or the script. The package's
notes name the versions of torch that it is made for.

## How to mend it

Bring the two together: upgrade the framework, or install the torch that it was made for. Where the script itself asks
for the name, as `from torch.distributed.fsdp import fully_shard` before torch 2.6, install a torch that has it, or
take it from where the installed one has it.

## Versions and sources

Holds for any version of torch; torch 2.2 to 2.13 is what ddpdoctor itself knows. Sources: torch's own modules, of
2.2 to 2.8 and 2.13 for the release that a name came with; the compatibility tables of Lightning, mmcv and DeepSpeed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

from ...model._logs import is_private
from ..torch_build._distributed import EXTENSION, is_missing_with
from ._since import EARLIER, SINCE, UNTIL

AILMENT = Ailment("DDP119", Severity.ERROR)
PACKAGE = re.compile(r"(?:site|dist)-packages[/\\](\w+)")
TORCHS = re.compile(r"(?:site|dist)-packages[/\\]torch[/\\]")
CHANGED = ("SyncBatchNorm", "compile", "_six")  # came with torch 1.1 and 2.0; went with torch 2.0


@log_pattern(r"'(\w*DataParallel|SyncBatchNorm)' object has no attribute '(\w+)'")
def of_a_wrapper(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a private attribute that an installed subclass of DDP expects."""
    if is_private(record, match[2]):
        yield _finding(record, match, match[2])


@log_pattern(r"(?:^|\n)ImportError: cannot import name '(\w+)' from '(torch(?:\.\w+)*)'(?! \(most likely)")
def of_an_import(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise an import of what torch does not have, although it was built with all its parts."""
    if "circular import" not in record.text and not is_missing_with(match[2], match[1]):
        yield _finding(record, match, f"{match[2]}.{match[1]}")


@log_pattern(r"module '(torch(?:\.\w+)*)' has no attribute '(\w+)'")
def of_a_module(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise an installed package that asks; a slip in the user's own file is another matter."""
    asked_by_package = bool(record.frames) and not record.frames[-1].is_users
    is_newer = f"{match[1]}.{match[2]}" in SINCE
    if (asked_by_package or is_newer or match[2] in CHANGED) and not is_missing_with(match[1], match[2]):
        yield _finding(record, match, f"{match[1]}.{match[2]}")


@log_pattern(r"ModuleNotFoundError: No module named '(torch\.[\w.]+)'")
def of_a_missing_module(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a module of torch that is gone, or not there yet."""
    if match[1] != EXTENSION:
        yield _finding(record, match, match[1])


@log_pattern(r"== rebuilt_param_indices_\.size\(\)\s*INTERNAL ASSERT|rebuilt parameter indices size is not same as")
def of_a_reducer(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a subclass of DDP that drives the reducer by itself, and does not have it rebuild its buckets."""
    found = [PACKAGE.search(frame.file) for frame in record.frames if "parallel" in frame.file]
    package = next((each[1] for each in reversed(found) if each and each[1] != "torch"), "")
    if package:
        yield Finding(
            f"{package}'s own subclass of DistributedDataParallel drives the reducer as it was before torch 1.7",
            (record.proof(match, "the reducer's buckets are rebuilt after the first step"),),
            Fix(
                f"upgrade {package}, or install the torch that it was made for",
                command=f"pip install --upgrade {package}",
            ),
            record.place,
        )


@log_pattern(
    r"TypeError: __init__\(\): incompatible constructor arguments\."
    r"[^\0]{0,200}?torch\._C\._distributed_c10d\.(?P<kind>ProcessGroup\w{0,20})\("
)
def of_the_compiled_part(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise torch's own Python code that calls its compiled part with what that does not take."""
    if not record.frames or TORCHS.search(record.frames[-1].file) is None:
        return
    caller = next((each for each in reversed(record.frames) if TORCHS.search(each.file) is None), None)
    yield Finding(
        f"torch's Python code does not fit its compiled {match['kind']}: it calls it as another version would",
        (record.proof(match, "arguments that this torch's compiled part takes"),),
        Fix(
            "leave out the options of the group that this torch takes otherwise, or install one torch, and a framework "
            "that was made for it",
            command="pip list | grep -iE '^(torch|megatron|deepspeed|lightning|accelerate)'; pip install "
            "--force-reinstall --no-deps torch==$(python -c 'import torch; print(torch.__version__.split(\"+\")[0])')",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                f"{caller.file}:{caller.line} hands over options (pg_options) of another version of torch"
                if caller
                else "the options (pg_options) are those of another version of torch",
                "torch's Python files and its compiled part are of two versions, one installed over the other",
            ),
            "python -c 'import torch; print(torch.__version__, torch.__file__)'; pip check",
        ),
    )


@log_pattern(r"ValueError: expected at least 3D input \(got 2D input\)")
def of_sync_batchnorm(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise SyncBatchNorm before torch 1.4."""
    yield _finding(record, match, "SyncBatchNorm of two dimensions")


def _finding(record: Record, match: re.Match[str], name: str) -> Finding:
    frames = [found[1] for frame in record.frames if (found := PACKAGE.search(frame.file)) and found[1] != "torch"]
    is_own = not frames and record.users is not None
    package = frames[-1] if frames else "the package that asks for it"
    came, went = SINCE.get(name), UNTIL.get(name)
    said = f", which came with torch {came}," if came else f", which went with torch {went}," if went else ","
    asks = "on which " + (package if frames else "this script" if is_own else "the code") + " relies"
    return Finding(
        f"the installed torch has no {name}{said} {'and ' if came or went else ''}{asks}",
        (record.proof(match, f"a torch with {name}"),),
        _mend(name, package if frames else "", is_own=is_own),
        record.place,
    )


def _mend(name: str, package: str, *, is_own: bool) -> Fix:
    """Return what brings the two together; ``package`` asks for the name, or the user's own file."""
    came, went = SINCE.get(name), UNTIL.get(name)
    if came:
        there = f" ({EARLIER[name]})" if is_own and name in EARLIER else ""
        other = f", or the {package} that was made for this torch" if package else ""
        return Fix(f"install torch {came} or later{there}{other}", command=f"pip install 'torch>={came}'")
    if is_own and not went:
        last = name.rpartition(".")[2]
        return Fix(
            "see which torch is installed, and where it has the name; else install the torch that the script was "
            "written for",
            command='python -c "import torch; print(torch.__version__, torch.__path__[0])"\n'
            f"grep -rnwE '(def|class) {last}' $(python -c 'import torch; print(torch.__path__[0])')",
        )
    who = package or ("the script" if is_own else "the package that asks for it")
    return Fix(
        f"{'change' if is_own else 'upgrade'} {who}, or install the torch that it was made for",
        command=f"pip install 'torch<{went}'"
        if went
        else f"pip install --upgrade {package}"
        if package
        else "python -m torch.utils.collect_env",
    )
