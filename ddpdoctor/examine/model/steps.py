"""What training steps with the user's model showed, bare and under DDP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.facets import NotRun
from ddpdoctor.jobs.outcome import Outcome, Raised, Returned

if TYPE_CHECKING:
    from ddpdoctor.examine.model.facts import Parity, PlainStep

# What DDP raises, by the words that separate one cause from the others (torch 2.2 to 2.13).
UNUSED = "Expected to have finished reduction in the prior iteration"
READY_TWICE = "Expected to mark a variable ready only once"
NO_GRADIENT = "is not needed when a module doesn't have any parameter that requires a gradient"
EXPANDED = "refers to a single memory location"
BAD_DTYPE = "Invalid scalar type"
MIXED = "must be on the same type of devices"
LAZY = "Modules with uninitialized parameters can't be used"
KNOWN_ERRORS = (UNUSED, READY_TWICE, NO_GRADIENT, EXPANDED, BAD_DTYPE, MIXED, LAZY)


@dataclass(frozen=True, slots=True)
class Steps:
    """What steps with the example batch showed; ``plain`` has one entry for each rank, in rank order.

    ``wrapped`` are the outcomes of several steps under DDP with ``options`` (those that the user's own file passes
    to it), empty when there were none, and ``why_not`` says why. ``remedies`` tell for each option that was tried
    as a cure whether it worked.
    """

    plain: tuple[PlainStep, ...]
    wrapped: tuple[Outcome, ...] = ()
    why_not: str = ""
    options: tuple[tuple[str, bool], ...] = ()
    remedies: tuple[tuple[str, bool], ...] = ()
    parities: tuple[Parity, ...] = ()

    def alone(self) -> tuple[PlainStep, ...]:
        """Return the steps of the bare model.

        Raises:
            NotRun: it cannot take one.
        """
        for rank, step in enumerate(self.plain):
            if step.trouble is not None:
                raise NotRun(f"without DDP the model takes no step with the batch of rank {rank}: {step.trouble}")
        return self.plain

    def under_ddp(self) -> tuple[Outcome, ...]:
        """Return the outcomes of the steps under DDP.

        Raises:
            NotRun: there were none.
        """
        self.alone()
        if not self.wrapped:
            raise NotRun(self.why_not)
        return self.wrapped

    def raised(self, words: str) -> tuple[Raised, ...]:
        """Return the ranks on which DDP raised an error with these words."""
        return tuple(outcome for outcome in self.wrapped if isinstance(outcome, Raised) and words in outcome.message)

    def cured_by(self, option: str) -> bool:
        """Whether the steps went through with this option of DDP."""
        return dict(self.remedies).get(option, False)

    def compared(self) -> tuple[Parity, ...]:
        """Return the comparisons of gradients, one for each rank; that of rank 0 holds what one process computed.

        Raises:
            NotRun: nothing could be compared.
        """
        if not all(isinstance(outcome, Returned) for outcome in self.under_ddp()):
            raise NotRun("the steps under DDP failed; other checks tell why")
        if self.parities[0].why_not:
            raise NotRun(self.parities[0].why_not)
        return self.parities
