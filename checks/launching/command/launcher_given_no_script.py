r"""The launcher was given no script: its command ends too early.

## What happens

A launch command over several lines is one command only as long as each line ends in a backslash. A space behind the
backslash, a comment or an empty line in between, or a backslash that was forgotten ends it there: torchrun and its
relatives say "error: the following arguments are required: training_script", and the shell then takes the next line,
which begins with two hyphens, for a command ("--nnodes: command not found").

## How to be sure

`cat -A launch.sh` shows the ends of lines as `$`: each line but the last ends in `\$`; `\ $` is a space behind the
backslash, `\^M$` an end of line of Windows.

## How to mend it

`sed -i 's/\\[[:space:]]*$/\\/' launch.sh` takes away what stands behind the backslashes; comments go above the command.

## Versions and sources

Holds for all versions of torchrun, torch.distributed.launch, accelerate launch and deepspeed. Source:
hiyouga/LlamaFactory#3301.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP424", Severity.ERROR)
NEXT_LINE = (
    r"\bline \d+: (?P<word>--?\w[^\s:]{0,99}|[\w./-]{1,99}\.py): "
    r"(?:command not found|No such file or directory|Permission denied)"
)
NO_ADDRESS = r"Using IP address of {2}for node (?P<node>\S{1,200})"


def _without_an_address(record: Record, match: re.Match[str], shown: Evidence) -> Finding:
    """Return that DeepSpeed handed on an empty master_addr, so that the launchers took another option for it."""
    return Finding(
        "DeepSpeed found no address of the first host: an empty --master_addr cuts the command short",
        (shown, record.proof(match)),
        Fix(
            "name the address; DeepSpeed asks the first host for it with hostname -I, which printed none",
            command="deepspeed --hostfile hosts.txt --master_addr FIRST_HOST ...\nssh FIRST_HOST hostname -I",
        ),
        record.place,
    )


@log_pattern(
    r"(?P<launcher>torchrun|launch\.py|run\.py|runner\.py|deepspeed|accelerate[^\n:]{0,40}): error: the following "
    r"arguments are required: (?:training_script|user_script)",
    context=(NEXT_LINE, NO_ADDRESS),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See that the launcher's own parser found no script, and with what the next line began."""
    if address := log.first(NO_ADDRESS):
        yield _without_an_address(record, match, address[0].proof(address[1], "the address of that host"))
        return
    rest = log.first(NEXT_LINE)
    shown: tuple[Evidence, ...] = (rest[0].proof(rest[1], "part of the launch command"),) if rest else ()
    yield Finding(
        f"{match['launcher'].split()[0]} was given no script"
        + (f": the command ends before {rest[1]['word']}" if rest else ": its command ends before it"),
        (record.proof(match, "the name of the script, after the launcher's options"), *shown),
        Fix(
            "end each line but the last in a backslash with nothing behind it",
            command="cat -A launch.sh | grep -nE '\\\\( +|\\^M)\\$$'   # spaces behind a backslash\n"
            "sed -i 's/\\\\[[:space:]]*$/\\\\/' launch.sh",
        ),
        record.place,
    )
