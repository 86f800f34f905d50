"""An experiment tracker has no key on the host that trains.

## What happens

The tracker asks for a key at the terminal; a rank has none: "wandb: ERROR api_key not configured (no-tty)", and rank 0
ends by a UsageError before the first step. The others fail later, in a communication with it. Containers, other nodes
and other users do not have the `~/.netrc` that `wandb login` has written on one host.

## How to be sure

The line is the tracker's own.

## How to mend it

Hand the key to the ranks as a variable, or switch the tracker off.

## Versions and sources

Sources: wandb documentation, "Environment variables"; Neptune documentation, "Set API token"; Comet documentation,
"Configure". Holds for wandb 0.12 and later, with any torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP429", Severity.ERROR)
MENDS = {
    "wandb": "export WANDB_API_KEY=...   # or: export WANDB_MODE=offline",
    "Neptune": "export NEPTUNE_API_TOKEN=...   # or: mode='offline'",
    "Comet": "export COMET_API_KEY=...",
}


@log_pattern(
    r"(?P<wandb>wandb[\w.]*\.UsageError: (?:api_key not configured|No API key configured)[^\n]{0,200}"
    r"|wandb: ERROR api_key not configured[^\n]{0,200})"
    r"|(?P<neptune>NeptuneMissingApiTokenException)|(?P<comet>Comet\.?ml requires an API key[^\n]{0,100})"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the tracker."""
    name = "wandb" if match["wandb"] else "Neptune" if match["neptune"] else "Comet"
    yield Finding(
        f"{name} has no key here, and a rank has no terminal to ask at",
        (record.proof(match, "a key in the environment of the ranks"),),
        Fix("hand the key to the ranks, or log without the server", command=MENDS[name]),
        record.place,
    )
