"""When a rank looks at what it keeps more of: in a few steps, and then in each that is twice the one before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.watch.rank.growing.graphs import FIRST, Graphs
from ddpdoctor.watch.rank.growing.piled import Piled, Remade
from ddpdoctor.watch.rank.growing.recompiled import Recompiled

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.models import ProcessWithModels


@dataclass(slots=True)
class Growing:
    """All of it in one process; ``at`` is the step of any optimizer that is the next to be looked at."""

    recorder: ProcessWithModels
    at: int = FIRST
    twice: int = FIRST
    graphs: Graphs = field(init=False)
    piled: Piled = field(init=False)
    remade: Remade = field(init=False)
    recompiled: Recompiled = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing seen."""
        self.graphs, self.piled = Graphs(self.recorder), Piled(self.recorder)
        self.remade, self.recompiled = Remade(self.recorder), Recompiled(self.recorder)

    def stepped(self, steps: int) -> None:
        """Look, in a step that is to be looked at."""
        if steps >= self.twice:
            self.twice *= 2
            self.recorder.safely(self.piled.look, steps)
            self.recorder.safely(self.recompiled.look, steps)
        self.recorder.safely(self.graphs.stepped, steps)
        self.at = self.twice if self.graphs.is_over else steps + 1
