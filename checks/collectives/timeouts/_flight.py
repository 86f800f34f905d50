"""What the flight recorder's dumps of several ranks say, in the words of ddpdoctor.logs.flight.compare."""

from __future__ import annotations

import re

from ddpdoctor.check import Evidence, Record

from ..._findings.few import few

OTHER_OPERATION = r"^flight recorder: (?P<said>ranks differ in operation [^\n]+)"
OTHER_TENSORS = r"^flight recorder: (?P<said>ranks differ in tensors [^\n]+)"
LATE = r"^flight recorder: (?P<said>(?P<who>ranks? [\d, ]+(?: and \d+ more)?) did not call [^\n]+)"
SILENT = r"^flight recorder: (?P<said>(?P<who>ranks? [\d, ]+(?: and \d+ more)?) left no dump; [^\n]+)"
CROSSED = r"^flight recorder: (?P<said>the ranks wait in different collectives)"
TOGETHER = r"^flight recorder: (?P<said>the ranks wait in one collective)"
ALONE = r"^flight recorder: (?P<said>one rank waits, and no other dump was read)"
SHOWN = 6  # ranks


def proofs(record: Record, expected: str) -> tuple[Evidence, ...]:
    """Quote what each rank's dump says."""
    lines = few(record.text.splitlines()[1:], lambda line: re.sub(r"^rank \d+", "", line), SHOWN)
    return tuple(Evidence(line, "" if number else expected, "flight recorder") for number, line in enumerate(lines))
