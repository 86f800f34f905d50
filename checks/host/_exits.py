"""How launchers and shells say that a signal ended a process."""

from __future__ import annotations

import re

MPI = {
    4: "Illegal instruction",
    6: "Aborted",
    7: "Bus error",
    8: "Floating point exception",
    9: "Killed",
    11: "Segmentation fault",
}
WINDOWS = {4: 0xC000001D, 8: 0xC0000094, 11: 0xC0000005}
"""The status with which Windows ends a process for what a signal stands for elsewhere."""


def status_of_windows(number: int) -> str:
    """Return the pattern of that status, as torchrun, mp.spawn and editors print it: with and without its sign."""
    return rf"(?:exit ?code|return code)[ :=]{{1,12}}(?:{WINDOWS[number]}|{WINDOWS[number] - 2**32})\b"


def died_by(number: int, name: str) -> str:
    """Return the pattern of torchrun, mp.spawn, accelerate, DeepSpeed, Lightning, Composer, shells and MPI."""
    return (
        rf"failed \(exitcode: (?:-{number}|{128 + number})\)|exitcode\s*: (?:-{number}|{128 + number}) "
        rf"|Signal {number} \({name}\) received by PID|terminated with signal {name}|died with <Signals\.{name}:"
        rf"|crashed with exit code -{number}\b"
        rf"|Child process with PID \d+ terminated with code -{number}\b"
        rf"|exits with return code = -{number}\b|exited with (?:exit )?code:? {128 + number}\b"
        rf"|interrupted by signal {number}: ?{name}\b"
        rf"|exited on signal {number} \({MPI[number]}\)|EXIT STRING: {MPI[number]} \(signal {number}\)"
        rf"|Signal: {MPI[number]} \({number}\)|srun: error: [\w.-]+: tasks? [\d,-]+: {MPI[number]}\b"
        + (f"|{status_of_windows(number)}" if number in WINDOWS else "")
    )


def process(text: str) -> str:
    """Return the name of the process as well as the line does: ``local rank 1 (pid 4711)``."""
    rank, pid = (
        re.search(r"(?:local[_ ]rank: |process (?:rank )?|Rank |rank )(\d+)", text),
        re.search(r"\b(?:pid:? |PID )(\d+)", text),
    )
    who = "a data loader worker" if "DataLoader worker" in text and not rank else "a rank"
    return (f"local rank {rank[1]}" if rank else who) + (f" (pid {pid[1]})" if pid else "")
