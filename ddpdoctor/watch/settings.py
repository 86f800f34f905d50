"""How a training is watched: chosen where it is started, handed to every process by one environment variable."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass

VARIABLE = "DDPDOCTOR_WATCH"
# A real-time signal that neither training code nor launchers use; its default action is never taken, as it is
# sent only to processes that have made their ``.dump`` file.
STACK_SIGNAL = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else None
MONITOR_COMMAND = ("-m", "ddpdoctor", "monitor")
"""What follows Python in the command of the process that watches the ranks: one of them may have started it."""
ON_FINDING = ("warn", "raise", "log")
ENDED = "finding"
"""The file of a session that says what the monitor has ended the training for."""
HANGS = "hangs"
"""The file of a session that is there while a training hangs of which the monitor has told why."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How much of a training is rehearsed: batches of an epoch, epochs; steps of one that counts no epochs.

    ``no_gpu``: this machine has none, and a process group over NCCL is made over gloo.
    """

    batches: int = 4
    epochs: int = 3
    steps: int = 40
    no_gpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the watched processes and the monitor agree on.

    ``session`` is a folder of this run alone (empty until the first rank makes it), ``hang_after`` in seconds.
    ``on_finding``: ``warn`` prints a finding at once, ``raise`` also ends the training, ``log`` only writes the report,
    to the file ``report``. ``profile``: how many steps are measured closely.
    """

    session: str
    hang_after: float = 30.0
    on_finding: str = "warn"
    rehearsal: Rehearsal | None = None
    report: str | None = None
    profile: int = 0

    def export(self, environ: MutableMapping[str, str]) -> None:
        """Hand the settings to the processes that are started with this environment."""
        environ[VARIABLE] = json.dumps(asdict(self))


def inherited() -> Settings | None:
    """Return the settings that this process was started with; None when it is not watched."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    values = json.loads(text)
    rehearsal = values.pop("rehearsal")
    return Settings(**values, rehearsal=Rehearsal(**rehearsal) if rehearsal else None)
