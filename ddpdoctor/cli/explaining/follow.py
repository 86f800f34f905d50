"""How ``ddpdoctor explain -f`` reads logs that grow, and logs and dumps that appear."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ddpdoctor.facets import BadTarget
from ddpdoctor.logs.flight.dumps import Dump, dump_at
from ddpdoctor.logs.read.sources import BLOCK, PICKLE, is_dump

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpdoctor.logs.examination import Examination
    from ddpdoctor.logs.read.reader import Reader
    from ddpdoctor.logs.read.sources import Source

PAUSE = 0.25  # seconds between two looks at a file that grows
QUIET = 4  # looks without anything new, after which what was read so far is judged


def follow(examined: Examination, look: Callable[[], list[Source]], speak: Callable[[], None]) -> None:
    """Read on until somebody ends the command; ``speak`` is called when all is quiet for now.

    ``look`` gives the files that are there: a folder gets more of them.
    """
    with ExitStack() as stack:
        followed = Followed(examined, stack)
        quiet = looks = 0
        while True:
            came = looks % QUIET == 0 and followed.find(look())
            came = followed.read() or came
            looks, quiet = looks + 1, 0 if came else quiet + 1
            if quiet == QUIET:
                followed.pause()
                speak()
            time.sleep(PAUSE)


@dataclass(slots=True)
class Followed:
    """The files that are read so far."""

    examined: Examination
    stack: ExitStack
    logs: dict[str, tuple[BinaryIO, Reader]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Of what looks like a dump: it is read when it no longer grows."""
    dumps: dict[str, Dump] = field(default_factory=dict)

    def find(self, sources: list[Source]) -> bool:
        """Open what is new; say whether there is a new dump."""
        before = len(self.dumps)
        for source in sources:
            if source.origin.name not in self.logs and source.origin.name not in self.dumps:
                try:
                    self._open(source)
                except (BadTarget, OSError):  # gone again, or not all of it is there yet
                    continue
        if len(self.dumps) == before:
            return False
        self.examined.compare(tuple(self.dumps.values()))
        return True

    def read(self) -> bool:
        """Read on in all logs; say whether there was anything new."""
        came = False
        for file, reader in self.logs.values():
            while data := file.read(BLOCK):
                self.examined.feed(reader, data)
                came = True
        return came

    def pause(self) -> None:
        """Take for complete what stands there."""
        for _, reader in self.logs.values():
            self.examined.pause(reader)

    def _open(self, source: Source) -> None:
        name = source.origin.name
        with source.open() as file:
            head = file.read(BLOCK)
        if not head:
            return
        if is_dump(head) or head.startswith(PICKLE):
            size = Path(name).stat().st_size
            grows, self.sizes[name] = self.sizes.get(name) != size, size
            if grows:
                return
            if (dump := dump_at(source)) is not None:
                self.dumps[name] = dump
                return
        self.logs[name] = self.stack.enter_context(source.open()), self.examined.begin(source.origin)
