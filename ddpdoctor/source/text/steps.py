"""How often a reader may ask what a name can be, before a file is left: some hang together in too many ways."""

from __future__ import annotations

from dataclasses import dataclass

MOST = 200_000
"""Questions about one file. Those that people write need a few thousand, the longest of them a tenth of this."""


class TooManyStepsError(Exception):
    """A file whose names hang together in more ways than are gone through."""


@dataclass
class Steps:
    """How many questions are left; any number, where nobody has begun to count."""

    left: float = float("inf")

    def begin(self, most: float = MOST) -> None:
        """Count from here."""
        self.left = most

    def take(self) -> None:
        """Count one question.

        Raises:
            TooManyStepsError: it is one too many, as is each one behind it.
        """
        self.left -= 1
        if self.left < 0:
            raise TooManyStepsError

    @property
    def is_over(self) -> bool:
        """Whether there were too many."""
        return self.left < 0


STEPS = Steps()
"""Those of the file that is looked at in this process."""
