"""An option of the launcher has no value: the variable that was to give it is not set.

## What happens

`torchrun --nnodes=$NNODES` with NNODES not set is `torchrun --nnodes=`. The launcher ends before a rank starts, in
words that name no variable: "invalid int value: ''", "invalid literal for int() with base 10: ''", "expected one
argument", "The hostname of the rendezvous endpoint ':29500' must be a dot-separated list of labels".

## How to be sure

Print the command: `echo torchrun --nnodes=$NNODES`. A variable that the batch script sets is not there in a shell on
the node, nor in a container, unless it is exported or handed on. Reported are numbers without a value, and addresses
without a host where several nodes are to meet.

## How to mend it

Set the variable, and let the shell say so where it is not: `torchrun --nnodes="${NNODES:?not set}"`.

## Versions and sources

Source: torch 2.13, torch/distributed/run.py and torch/distributed/elastic/rendezvous/utils.py,
`parse_rendezvous_endpoint`; accelerate 1.15, commands/launch.py. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

from ..._launchers import nodes

if TYPE_CHECKING:
    from ddpdoctor.check import Launch, LaunchScript

AILMENT = Ailment("DDP494", Severity.ERROR)
NUMBERS = {
    *("nnodes", "nproc-per-node", "node-rank", "master-port"),
    *("num-processes", "num-machines", "machine-rank", "main-process-port", "num-gpus", "num-nodes"),
}
ADDRESSES = {"master-addr", "main-process-ip"}
"""Of these, the launchers take none for that of this host."""


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for options whose value is missing."""
    for each in launch.launches:
        name = next((name for name in each.options if _is_missing(launch, each, name)), None)
        if name is None:
            continue
        said = f"--{name.replace('-', '_')}"
        yield Finding(
            f"{said} of {each.tool} has no value: the variable that was to give it is not set",
            (launch.seen(each.line, f"{said}=VALUE"),),
            Fix(
                "set the variable where the command is started, and let the shell refuse an empty one",
                command=f'{each.tool} {said}="${{{name.replace("-", "_").upper()}:?not set}}" ...',
            ),
            launch.place(each.line),
        )


def _is_missing(launch: LaunchScript, each: Launch, name: str) -> bool:
    word = each.options[name]
    if word is None or word.is_open:
        return False
    is_alone = (nodes(launch, each) or 1) < 2  # noqa: PLR2004 - several
    if name == "rdzv-endpoint":
        return word.text.startswith(":")
    if name in ADDRESSES:
        return not is_alone and (not word.text or word.text.startswith("--"))
    return name in NUMBERS and (not word.text or word.text.startswith("--"))
