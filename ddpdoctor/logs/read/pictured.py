"""Tracebacks as others print them than Python: rich's in a box, and IPython's with arrows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ddpdoctor.logs.records import Frame

BOX = re.compile(r"[╭│╰┌└┃]")
INSIDE = re.compile(r"│ ?(?P<said>.*?)\s*│?$")
RICH = re.compile(r"(?P<file>(?:~|\.{0,2}/|[A-Za-z]:\\|[\w.-]+/).*?):(?P<line>\d+) in (?P<function>\S+)$")
PATH = re.compile(r"(?:~|\.{0,2}/|[A-Za-z]:\\)\S+$")
CELL = re.compile(r"Cell In ?\[\d+\], line (?P<line>\d+)(?:, in (?P<function>[\w.<>]+))?")
IPYTHON = re.compile(r"File (?P<file>[^\"]\S*?):(?P<line>\d+),? in (?P<function>[\w.<>]+)")
OLD_IPYTHON = re.compile(r"(?P<file>(?:~|/)\S+\.py|/tmp/ipykernel\S+|<ipython-input\S+>) in (?P<function>[\w.<>]+)")
ARROW = re.compile(r"-+> ?(?P<line>\d+)(?:\s|$)")


@dataclass(slots=True)
class Pictured:
    """The frames of one traceback, as its lines come."""

    frames: list[Frame] = field(default_factory=list)
    _path: str = ""
    """The first part of a path that a box was too narrow for; or a file whose line an arrow will tell."""
    _function: str = ""

    def takes(self, text: str) -> bool:
        """Take a line, if it is one of such a traceback."""
        if BOX.match(text):
            self._in_box(text)
            return True
        for form in (IPYTHON, CELL):
            if match := form.match(text):
                file = match.groupdict().get("file") or match[0].split(",")[0]
                self.frames.append(Frame(file, int(match["line"]), match["function"] or "<module>"))
                return True
        if match := OLD_IPYTHON.match(text):
            self._path, self._function = match["file"], match["function"]
            return True
        if match := ARROW.match(text):
            if self._function:
                self.frames.append(Frame(self._path, int(match["line"]), self._function))
            self._path = self._function = ""
            return True
        return False

    def _in_box(self, text: str) -> None:
        inside = INSIDE.match(text)
        said = inside["said"] if inside else ""
        if match := RICH.match(self._path + said) or RICH.match(said):
            self.frames.append(Frame(match["file"], int(match["line"]), match["function"]))
            self._path = ""
        else:
            self._path = said if PATH.match(said) else ""
