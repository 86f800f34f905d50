"""A program that a rank has started, as a shell command, failed.

## What happens

The script runs a command (`subprocess.run(..., check=True)`): to unpack a data set, to copy it to the host's disk, to
ask git or nvidia-smi. It ends with a status that is not 0, `CalledProcessError` ends the rank, and the others wait for
it. Python says the command and its status; what the program itself had to say stands above, or nowhere, where its
output was captured.

## How to be sure

Run the command that the message quotes, on the host of that rank, as the user of the ranks, in its folder.

## How to mend it

What is prepared once belongs on one rank of each host, with a barrier behind it, and better before the training
starts. A command whose failure does no harm gets `check=False`, on all ranks alike. `except CalledProcessError as
error: print(error.stderr)` shows output that was captured.

## Versions and sources

Holds for torch 2.2 and later, and all versions of Python 3. Source: Python documentation, "subprocess".
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP166", Severity.ERROR)
LAUNCHES = re.compile(
    r"torchrun|torch\.distributed|accelerate|deepspeed|mpirun|srun|local[_-]rank|['\"]-u['\"]|main\.c\b"
)
NOT_FOUND, NOT_RUN = 127, 126  # what a shell returns
MEANING = {NOT_FOUND: ": the shell did not find it", NOT_RUN: ": it is not allowed to run"}


@log_pattern(
    r"CalledProcessError: Command (?P<command>[^\n]{1,900}?) (?:returned non-zero exit status (?P<status>\d+)"
    r"|died with <Signals\.(?P<signal>SIG\w+))",
    plain=True,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the program, and what its status means."""
    command = match["command"]
    if LAUNCHES.search(command) or record.users is None or "/bin/" in record.users.file:
        return
    words = re.findall(r"[^\s'\"\[\],]+", command)
    name = words[0].rpartition("/")[2] if words else "a program"
    by = f"rank {record.rank}" if record.rank is not None else "the program"
    ended = f"ended with status {match['status']}{MEANING.get(int(match['status']), '')}" if match["status"] else ""
    killed = match["signal"] == signal.Signals.SIGKILL.name
    yield Finding(
        f"{name}, which {by} has started, "
        + (ended or f"was ended by {match['signal']}" + (": no memory left, as a rule" if killed else "")),
        (record.proof(match, "status 0"),),
        Fix(
            "run the command by itself on that host, and read what it says",
            command=" ".join(words)[:300] or name,
        ),
        record.place,
    )
