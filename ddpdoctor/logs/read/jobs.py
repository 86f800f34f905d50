"""Several jobs in one file: where a launcher starts anew after an earlier launch had failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.logs.read.lines import Line

# The finder shows the reader these lines: see STRUCTURE there.
ENDED = re.compile(
    r"^(?:[\w.]+\.)?ChildFailedError:|^srun: error: .*Exited with exit code|exits with return code = -?[1-9]"
    r"|CalledProcessError: Command .* returned non-zero exit status|^slurmstepd: error: \*\*\* JOB \d+ .*CANCELLED AT"
)
BEGUN = re.compile(
    r"(?:^|\s)torch[./]distributed[./]run(?:\.py)?:|^WARNING:(?:torch\.distributed\.run|__main__):\*"
    r"|Starting elastic_operator with launch configs|^(?:[+$] ?)+(?:exec |srun .{0,200} )?torchrun "
    r"|runner\.py:\d+:main\] cmd = "
)


@dataclass(slots=True)
class Jobs:
    """Counts the jobs of one source; a job that went well needs no telling apart from the next."""

    count: int = 1
    line: int = 1
    """The line that the last of them begins with, where there are several."""
    _ended: str | None = None
    """Whose output said that a job had failed."""

    def feed(self, line: Line) -> bool:
        """Take the next line; say whether another job begins with it. Launchers on other hosts are of the same job."""
        if self._ended == line.stream and BEGUN.search(line.text):
            self.count, self.line, self._ended = self.count + 1, line.number, None
            return True
        if ENDED.search(line.text):
            self._ended = line.stream
        return False
