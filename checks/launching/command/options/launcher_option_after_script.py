"""An option of the launcher stands behind the script, and is passed to the script.

## What happens

What follows the name of the script is the script's own: `torchrun train.py --nproc_per_node=8` starts one rank, which
is handed `--nproc_per_node=8`. Its parser ends it with "unrecognized arguments", or, where it does not mind, one rank
trains on one GPU.

## How to be sure

In a log, and under `ddpdoctor run`: the script's own parser refused an option of a launcher. In a file (`ddpdoctor
lint`): the option stands behind the script, and no Python file beside it knows its name.

## How to mend it

    torchrun --nproc_per_node=8 train.py

## Versions and sources

Source: torchrun documentation, "Usage"; torch/distributed/run.py (`argparse.REMAINDER`). Holds for torch 2.2 to 2.13,
accelerate 0.20 to 1.15 and DeepSpeed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, lint, log_pattern

from ._option import refused

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Edit, LaunchScript, Word

AILMENT = Ailment("DDP466", Severity.ERROR)
AGENT = {"nproc-per-node", "nnodes", "node-rank", "rdzv-endpoint", "rdzv-backend", "rdzv-id", "standalone"}
OWN = {
    "torchrun": AGENT,
    "torch.distributed.launch": AGENT,
    "accelerate launch": {"num-processes", "num-machines", "machine-rank", "main-process-port", "multi-gpu"},
    "deepspeed": {"num-gpus", "num-nodes", "hostfile"},
}
"""What no script has a use for, unless it says so."""


NAMES = "|".join(sorted({name for names in OWN.values() for name in names})).replace("-", "[-_]")
OPTION = re.compile(rf"--(?P<name>{NAMES})\b(?:[= ][^\s-]\S*)?")
TORCHRUN = "torchrun"
BY_LAUNCHER = re.compile(r"(?:^|[\s/])(?:torchrun|launch\.py|run\.py|accelerate[^\n:]{0,40}|deepspeed): error: $")
"""What the launcher's own parser refuses stands before the script."""


@log_pattern(refused(rf"(?<=--)(?:{NAMES})"))
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote what the script's own parser refused."""
    if BY_LAUNCHER.search(match.string, 0, match.start()):
        return
    line = match.string[match.start() :].partition("\n")[0]
    found = list(OPTION.finditer(line))
    name = found[0]["name"].replace("_", "-")
    tool = next((tool for tool, names in OWN.items() if name in names), TORCHRUN)
    options = " ".join(each[0] for each in found)
    yield Finding(
        f"{options} stands behind the script: {tool} passes it on, and does without it",
        (record.proof(match, "arguments of the script's own"),),
        Fix("write it before the script", command=f"{tool} {options} train.py"),
        record.place,
    )


@lint
def in_launch_script(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for them among the arguments of a script that is at hand."""
    for each in launch.launches:
        script = each.script.text if each.script else ""
        if not script.endswith(".py") or not _is_at_hand(project, script):
            continue
        for word in each.arguments:
            name = word.text.partition("=")[0].lstrip("-").replace("_", "-")
            if not word.text.startswith("--") or name not in OWN[each.tool] or name in each.options:
                continue
            if project.mentions(name.replace("-", "[-_]")):
                continue
            yield Finding(
                f"{word.text.partition('=')[0]} stands behind {script}: {each.tool} passes it on, and does without it",
                (launch.seen(word.line, f"{each.tool} {word.text} ... {script}"),),
                Fix("write it before the script", edits=_moved(launch, each.script, word)),
                launch.place(word.line, word.begin),
            )
            break


def _is_at_hand(project: Around, script: str) -> bool:
    """Whether a script lies where a command names it, or by its name in a folder above the command's file."""
    return project.beside(script) is not None or project.beside(script.rpartition("/")[2]) is not None


def _moved(launch: LaunchScript, script: Word | None, word: Word) -> tuple[Edit, ...]:
    """Return the edits that write an option, which has its value with it, in front of the script."""
    text = launch.text[word.begin : word.end]
    if script is None or "=" not in text or "\n" in text or launch.text[word.begin - 1 : word.begin] != " ":
        return ()
    return (
        launch.replaced(script.begin, script.begin, f"{text} "),
        launch.replaced(word.begin - 1, word.end, ""),
    )
