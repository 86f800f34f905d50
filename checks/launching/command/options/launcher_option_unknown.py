"""The launcher has no option of that name.

## What happens

torchrun and accelerate end with "unrecognized arguments" or "the following arguments are required: training_script"
before a rank starts.

## How to be sure

`torchrun --help` lists the options; hyphens and underscores are the same, and torchrun takes a name that is cut short,
where one option alone begins so. In a file (`ddpdoctor lint`): the option is none of the launcher's, nor the begin of
one, and a letter or two away from one; or it begins with a dash of a text processor (`—nproc_per_node`), which the
launcher takes for the file that it is to start.

## How to mend it

Write the name as `torchrun --help` does: `--nproc-per-node`, `--nnodes`, `--node-rank`, `--master-addr`.

## Versions and sources

Source: torch 2.13, torch/distributed/run.py; accelerate 1.15, commands/launch.py. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    closest,
    launcher_options,
    lint,
    log_pattern,
)

if TYPE_CHECKING:
    from ddpdoctor.check import LaunchScript

AILMENT = Ailment("DDP491", Severity.ERROR)
UNDERSCORES = r"\[--(?:nproc_per_node|rdzv_backend|node_rank|standalone)\b"
HYPHENS = r"\[--(?:nproc-per-node|rdzv-backend|node-rank)\b"


@log_pattern(
    r"(?:^|[\s/])(?P<tool>torchrun|launch\.py|run\.py|[Aa]ccelerate[^\n:]{0,40}): error: unrecognized arguments: "
    r"(?P<options>--[^\n]{1,300})",
    context=(UNDERSCORES, HYPHENS),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Quote the launcher's own parser; the usage above it shows how it spells its options."""
    tool = match["tool"] if match["tool"].lower().startswith("accelerate") else "torchrun"
    tool = "accelerate launch" if tool == "Accelerate CLI tool" else tool
    word = match["options"].split()[0]
    name = word.partition("=")[0].lstrip("-")
    is_old = "-" in name and log.first(UNDERSCORES) is not None and log.first(HYPHENS) is None
    meant = name.replace("-", "_") if is_old else closest(name.replace("_", "-"), launcher_options(tool))
    yield Finding(
        f"{tool} has no option --{name}"
        + (": before torch 2.0 its options are written with underscores" if is_old else "")
        + (f": --{meant} is meant" if meant and not is_old else ""),
        (record.proof(match, f"--{meant}" if meant else f"options that `{tool} --help` lists"),),
        Fix(
            "write the name as the launcher has it; what is meant for the script stands behind the script",
            diff=f"-{word}\n+{word.replace(name, meant)}" if meant else "",
            command="" if meant else f"{tool} --help",
        ),
        record.place,
    )


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look at the first option that a launcher does not have."""
    for each in launch.launches:
        word = each.unknown
        name = word.text.partition("=")[0] if word is not None else ""
        if word is None or not name.startswith("--") or "$" in name:
            continue
        key = name.lstrip("-").replace("_", "-")
        known = launcher_options(each.tool)
        meant = closest(key, known)
        is_short = each.tool != "accelerate launch" and any(other.startswith(key) for other in known)
        if not meant or is_short:
            continue
        right = f"--{meant.replace('-', '_') if '_' in name else meant}"
        is_here = launch.text.startswith(name, word.begin)
        edits = (launch.replaced(word.begin, word.begin + len(name), right),) if is_here else ()
        yield Finding(
            f"{each.tool} has no option {name}: --{meant} is meant",
            (launch.seen(word.line, f"--{meant}"),),
            Fix("write the name as the launcher has it", diff=f"-{name}\n+--{meant}", edits=edits),
            launch.place(word.line, word.begin),
        )


SCRIPT = re.compile(r"\.py$|^-m$|^--(?:module|no[-_]python|run[-_]path)$|^--?h(?:elp)?$")
"""What names a program to start, or says that none is to follow."""


@lint
def without_a_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for a command that hands its launcher the options of a script, and names no script."""
    for each in launch.launches:
        name = each.unknown.text.partition("=")[0] if each.unknown is not None else ""
        words = each.command.words[len(each.before) :]
        behind = words[words.index(each.unknown) :] if each.unknown in words else ()
        if each.tool == "accelerate launch" or not name.startswith("--") or not behind:
            continue
        key, known = name.lstrip("-").replace("_", "-"), launcher_options(each.tool)
        if closest(key, known) or any(other.startswith(key) for other in known):
            continue
        if any(word.is_open or SCRIPT.search(word.text) for word in behind):
            continue
        yield Finding(
            f"{each.tool} is given no script to start: {name}, which it does not have, stands where the script is to",
            (launch.seen(behind[0].line, f"train.py {name}"),),
            Fix("name the script in front of its options", diff=f"-{name}\n+train.py {name}"),
            launch.place(behind[0].line, behind[0].begin),
        )


DASHES = "\u2013\u2014\u2012\u2015"
"""What text processors make of two hyphens."""


@lint
def with_a_dash(launch: LaunchScript) -> Iterator[Finding]:
    """Look for an option that begins with a dash which is no hyphen, where the launcher looks for the script."""
    for each in launch.launches:
        word = each.script
        if word is None or not word.text.startswith(tuple(DASHES)):
            continue
        name = word.text.lstrip(DASHES)
        dashes = word.text[: len(word.text) - len(name)]
        is_here = launch.text.startswith(dashes, word.begin)
        yield Finding(
            f"{word.text} begins with a dash that is no hyphen: {each.tool} takes it for the file to start",
            (launch.seen(word.line, f"--{name}"),),
            Fix(
                "write two hyphens",
                diff=f"-{word.text}\n+--{name}",
                edits=(launch.replaced(word.begin, word.begin + len(dashes), "--"),) if is_here else (),
            ),
            launch.place(word.line, word.begin),
        )
