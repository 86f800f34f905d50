"""The launcher passes --local-rank, and the script does not know the option by this spelling.

## What happens

`python -m torch.distributed.launch` hands each process its local rank as an option. Since torch 2.0 it is spelt
`--local-rank=0`, with a hyphen; scripts that declare `--local_rank` end with "unrecognized arguments: --local-rank=0"
on every rank, before anything else happens. `parse_known_args` passes over it: every process then has the default, and
takes the same GPU; where the option is `required`, the script ends all the same.

## How to be sure

The rejected argument has a hyphen; in the usage line the script's own option has an underscore, or it
has none.

In a source (`ddpdoctor lint`): `args.local_rank` chooses a device, the parser knows it as `--local_rank` alone, and
neither the file nor one in its reach reads LOCAL_RANK. Not reported where a README or a list of requirements beside it
pins torch to 1.x, and nothing is started by torchrun.

## How to mend it

Start with torchrun and read `int(os.environ["LOCAL_RANK"])`, which works in all versions; or declare
both spellings, which argparse stores under one name.

## Versions and sources

Source: PyTorch documentation, "torch.distributed.launch", and its notice on the change in version 2.0. Holds for torch
2.0 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, lint, log_pattern

from ._local_rank_parser import both_ways, declarations, hyphened, is_calculated, is_strict, mended, outcome
from ._local_rank_uses import comes_from_elsewhere, use, use_elsewhere
from ._option import refused

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP405", Severity.ERROR)
DECLARED = r"usage:[^\n]{0,999}--local_rank\b|^\s+\[?--local_rank\b"


@log_pattern(refused("local-rank"), context=(DECLARED,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Quote what the script's own parser refused, and what it would take."""
    usage = log.first(DECLARED)
    yield Finding(
        "torch.distributed.launch passes --local-rank, and the script "
        + ("declares --local_rank" if usage else "has no such option"),
        (
            record.proof(match, "no --local-rank in the arguments: torchrun sets $LOCAL_RANK"),
            *((usage[0].proof(usage[1], "--local-rank"),) if usage else ()),
        ),
        Fix(
            "start with torchrun and read LOCAL_RANK; or let the script take both spellings",
            command="torchrun --standalone --nproc_per_node=2 train.py",
            diff='-parser.add_argument("--local_rank", type=int, default=0)\n'
            '+parser.add_argument("--local-rank", "--local_rank", type=int, default=0)',
        ),
        record.place,
    )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a local rank that can come from --local_rank alone, and that decides about a device."""
    yield from _about_devices(script, project)


def _about_devices(script: Script, project: Around) -> Iterator[Finding]:
    if script.frameworks - {"fvcore"} or "--local_rank" not in script.text or comes_from_elsewhere(project):
        return
    if not script.joins and not project.says(r"init_process_group|init_distributed|\binit_dist|apex"):
        return
    for call in declarations(script, project):
        if is_calculated(call):
            continue
        used = use(script) or use_elsewhere(script, project, call)
        if used is not None and not _is_passed(project):
            yield Finding(
                outcome(script, call),
                (script.seen(call, 'default=int(os.environ["LOCAL_RANK"])'), used),
                Fix(
                    "take it from the environment, and know the option by both spellings",
                    diff=mended(script, call),
                    edits=both_ways(script, call),
                ),
                script.place(call),
            )


@lint
def by_its_launch(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a strict parser that knows --local_rank alone, in a script that torch.distributed.launch is to start."""
    if script.frameworks - {"fvcore", "mmcv", "mmengine"} or "--local_rank" not in script.text:
        return
    if project.says("local-rank") or (project.says("deepspeed") and not _is_named_in_launch(script, project)):
        return
    is_of_library = re.search(OF_LIBRARIES, script.text) and _is_launched_beside(script, project)
    if not script.joins and not is_of_library and not _joins_by_helper(script):
        return
    told = {each.place for each in _about_devices(script, project)}
    for call in declarations(script, project):
        if script.place(call) in told:
            continue
        is_launched = "torch.distributed.launch" in script.code(call) or _is_launched(script, project)
        if is_launched and is_strict(script, call) and not _is_passed(project):
            yield Finding(
                "torch.distributed.launch of torch 2 passes --local-rank, which this parser does not know: it ends "
                "the script",
                (script.seen(call, "--local-rank as well"),),
                Fix(
                    "know the option by both spellings, or start with torchrun",
                    diff=mended(script, call),
                    edits=(hyphened(script, call),),
                ),
                script.place(call),
            )


def _is_passed(project: Around) -> bool:
    """Whether the project says that it is made for an older torch, whose launcher passes the option as it is here.

    torchrun passes it in no version.
    """
    return project.is_made_for_torch_before("2") and not project.in_launches(r"\btorchrun\b")


def _joins_by_helper(script: Script) -> bool:
    """Whether the file calls a helper of the project that makes the process group."""
    last = max(script.nodes(ast.Call), key=lambda each: each.lineno, default=None)
    return last is not None and script.joins_elsewhere(last)


LAUNCHER = r"torch\.distributed\.launch\b(?!`)"
"""The launcher in a command: not where a text names it, as the one that torchrun has replaced."""


LAUNCHED = r"-m\s+torch\.distributed\.launch\b(?![^\n]*--?use[_-]env)"
"""A command of the launcher that passes the option."""


GOES_ON = r"(?:(?!--?use[_-]env)[^\n]|\\[ \t]*\n)*"
"""The rest of a command, over several lines, that hands the local rank over as an option."""


OF_LIBRARIES = r"\binit_dist\(|\bRunner\b"
"""What makes the process group in scripts of OpenMMLab's libraries."""


def _is_launched_beside(script: Script, project: Around) -> bool:
    """Whether a launch script in the same folder starts the file by torch.distributed.launch."""
    name = re.escape(script.name)
    command = rf"{LAUNCHER}{GOES_ON}[\s/]{name}\b"
    return any(re.search(command, text) for text in project.launches_beside())


def _is_named_in_launch(script: Script, project: Around) -> bool:
    """Whether a command of torch.distributed.launch names the script, and none of DeepSpeed's launcher does."""
    name = re.escape(script.name)
    return project.in_launches(rf"{LAUNCHER}{GOES_ON}\b{name}") and not project.in_launches(
        rf"\bdeepspeed[ \t]{GOES_ON}\b{name}"
    )


def _is_launched(script: Script, project: Around) -> bool:
    """Whether a command of torch.distributed.launch stands in the script, or one that names it in a launch script."""
    name = re.escape(script.name)
    if project.in_launches(rf"{LAUNCHER}{GOES_ON}\b{name}"):
        return True
    return re.search(LAUNCHED, script.text) is not None and not project.in_launches(rf"\btorchrun\b{GOES_ON}\b{name}")
