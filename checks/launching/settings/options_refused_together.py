"""A package refuses options that do not go together, or one that lacks another.

## What happens

A package looks at what it was asked for before it trains, and refuses what it cannot do: "DeepSpeed Zero-3 is not
compatible with ...", "Found `scheduler` configured in the DeepSpeed config, but no `optimizer`",
"--load_best_model_at_end requires the save and eval strategy to match"; or a value that it does not know, beside which
it lists those that it does: "You selected an invalid strategy name: `strategy='dp'`. ... Example choices: auto, ddp".
Every rank says so and ends; nothing is wrong with the machine, the network or the data.

## How to be sure

The exception is raised by the package itself, and names the options. It shows with one rank as well.

## How to mend it

Change one of the options that the message names: in the script, in the launcher's configuration (`accelerate config`,
DeepSpeed's JSON, Hydra's YAML), or on the command line, which of the three is read last.

## Versions and sources

Seen in hiyouga/LlamaFactory#6136; transformers, training_args.py and integrations/deepspeed.py; accelerate,
utils/dataclasses.py; Lightning, trainer/connectors. No version of torch changes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP448", Severity.ERROR)
PACKAGE = re.compile(r"(?:site|dist)-packages[/\\](\w+)")
NAMED = re.compile(
    r"`(--?\w[\w-]{2,40}|\w[\w.]{2,40})[=(]?[^`\n]{0,40}`|'(\w+_\w+)'|(?<![\w-])(--\w[\w-]{2,40})|\b(\w+_\w+)="
)
SHOWN = 4
LONGEST = 200  # characters of what is said, in the finding's own line


@log_pattern(
    r"(?:ValueError|AssertionError|NotImplementedError|MisconfigurationException|ConfigurationException|ConfigError"
    r"|RuntimeError|ImportError): "
    r"(?P<said>[^\n]{0,400}?(?:(?:not compatible|incompatible) with|mutually exclusive"
    r"|(?:cannot|can't|can not) (?:both )?be (?:used |set |specified |combined |enabled |passed )*"
    r"(?:together|simultaneously|at the same time|with\b|when\b|if\b)"
    r"|not (?:currently |yet )?supported (?:with|when|together|in combination|by)\b"
    r"|only (?:supported|supports?|works?|possible|compatible|available) (?:with|when|if|for|on)\b"
    r"|configured in the [\w ]{1,30}config, but no|requires? (?:that |the |setting )?[`'-]"
    r"|[Yy]ou (?:need to|must|should|have to) (?:set|specify|pass|provide|enable|disable)"
    r"|[Pp]lease (?:set|specify|pass|provide|configure|enable|disable)\b(?! via\b)"
    r"|must be (?:set|specified|provided|passed|one of|divisible|a multiple)|should be one of"
    r"|(?P<choices>(?:[Ee]xample|[Aa]vailable|[Vv]alid|[Ss]upported|[Aa]llowed|[Pp]ossible) (?:choices|options|values"
    r"|names|types|backends|strategies|optimizers|schedulers|models)(?: are)?:))[^\n]{0,400})",
    plain=True,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the package, and the options that its words name."""
    found = PACKAGE.search(record.frames[-1].file) if record.frames else None
    if found is None:
        return
    said = " ".join(match["said"].split())
    names = list(dict.fromkeys(next(filter(None, each.groups())).lstrip("-") for each in NAMED.finditer(said)))
    listed = "|".join(map(re.escape, names[:SHOWN])) or found[1]
    listed_by_it = bool(match["choices"])
    yield Finding(
        f"{found[1]} refuses what it is asked for: {said[:LONGEST]}" + ("..." if len(said) > LONGEST else ""),
        (record.proof(match, "one of the values that it lists" if listed_by_it else "options that go together"),),
        Fix(
            "give it one of the values that it lists"
            if listed_by_it
            else "change one of the options that it names, where they are set",
            command=f"grep -rnE '{listed}' --include=*.py --include=*.json --include=*.y*ml --include=*.sh .",
        ),
        record.place,
    )
