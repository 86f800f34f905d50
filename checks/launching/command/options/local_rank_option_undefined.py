"""The launcher passes --local_rank, and the script has no such option.

## What happens

`python -m torch.distributed.launch` before torch 2.0, and the launchers of some frameworks still, hand each process
its local rank as an option `--local_rank=0`. A script whose parser does not declare it ends with "unrecognized
arguments: --local_rank=0" on every rank, before anything else happens. The underscore tells it from the change of
torch 2.0, which passes a hyphen.

## How to be sure

The rejected argument in the message, with its underscore. In a file that starts trainings (`ddpdoctor lint`):
torch.distributed.launch without `--use_env` starts a script that makes a parser, and nothing in it names a local rank.

## How to mend it

Start with torchrun, which passes nothing and sets the variable LOCAL_RANK; or `--use_env` for the old
launcher; or declare the option.

## Versions and sources

Source: PyTorch documentation, "torch.distributed.launch" and "Transitioning from torch.distributed.launch to
torchrun". Holds for torch 1.x launchers, DeepSpeed's launcher, and torch 2.2 to 2.13 with torchrun as the way out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, lint, log_pattern

from ._option import refused

if TYPE_CHECKING:
    from ddpdoctor.check import Around, LaunchScript

AILMENT = Ailment("DDP406", Severity.ERROR)
SCRIPT = re.compile(r"^\s*(\S+\.py): error: ", re.MULTILINE)


@log_pattern(refused("local_rank"))
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote what the script's own parser refused; where that is the kernel of a notebook, there is no script."""
    if "ipykernel_launcher" in record.text:
        yield _in_notebook(record, match)
        return
    named = SCRIPT.search(record.text)
    script = named[1] if named else "train.py"
    yield Finding(
        "the launcher passes --local_rank, and the script has no such option",
        (record.proof(match, "no --local_rank in the arguments: torchrun sets $LOCAL_RANK"),),
        Fix(
            "start with torchrun and read LOCAL_RANK; or declare the option",
            command=f"torchrun --standalone --nproc_per_node=2 {script}   # before torch 1.10: python -m "
            "torch.distributed.launch --use_env",
            diff=" parser = argparse.ArgumentParser()\n"
            '+parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))',
        ),
        record.place,
    )


def _in_notebook(record: Record, match: re.Match[str]) -> Finding:
    return Finding(
        "the launcher starts the notebook's kernel again, not a script: what is called in a cell makes its ranks from "
        "the command line of the running program",
        (record.proof(match, "a script that each rank runs"),),
        Fix(
            "write the training into a file, and start that; or start functions by notebook_launcher",
            command="!torchrun --standalone --nproc_per_node=2 train.py   # in a cell, behind %%writefile train.py",
        ),
        record.place,
    )


OWN_PARSER = re.compile(r"^[ \t]*(?:\w+\s*=\s*){0,2}(?:argparse\.)?ArgumentParser\((?!.*parents)", re.MULTILINE)
ELSEWHERE = re.compile(
    r"--?local|parse_known_args|parents\s*=|\w+\(\s*(?:self\.)?(?:parser|ap|p)\b|(?:add_argument|Parser)\([^()]*\*"
    r"|sys\.argv|REMAINDER",
    re.IGNORECASE,
)
"""What can declare the option, or let it pass, where the script does not."""


@lint
def in_launch_script(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for a script at hand that makes a parser and knows no local rank."""
    for each in launch.launches:
        name = each.script.text if each.script and each.tool == "torch.distributed.launch" else ""
        text = project.beside(name) if name.endswith(".py") and "use-env" not in each.options else None
        if text is None or not OWN_PARSER.search(text) or ".parse_args()" not in text or ELSEWHERE.search(text):
            continue
        yield Finding(
            f"torch.distributed.launch passes --local-rank to {name}, whose parser refuses it",
            (launch.seen(each.line, "torchrun, which passes nothing and sets LOCAL_RANK"),),
            Fix("start with torchrun", command=f"torchrun --nproc_per_node=2 {name}"),
            launch.place(each.line),
        )
