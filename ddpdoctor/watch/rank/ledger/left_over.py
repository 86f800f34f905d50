"""Gradients that a step leaves behind: what of them is still there when the next backward begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import Carried
from ddpdoctor.watch.rank.compared.exchanges import is_captured
from ddpdoctor.watch.rank.compared.fingerprints import is_dense

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site


@dataclass(slots=True)
class LeftOver:
    """The norms at the first backward after a step, on their devices; ``site`` is the line that cleared last."""

    norms: list[Any] = field(default_factory=list)
    site: Site | None = None
    looked: bool = False

    def backward_begins(self, parameters: Iterable[Any]) -> None:
        """Keep how large the gradients are, before anything is added to them. Nothing is waited for.

        A backward of another model's loss comes before these are cleared: the last one counts that adds nothing yet.
        """
        if is_captured():
            return
        import torch

        self.looked = True
        own = (_numbers(each.grad) for each in parameters if each.grad is not None)
        there = [each.detach() for each in own if is_dense(each)]
        self.norms = []
        if there:
            with torch.no_grad():
                self.norms = [each.float() for each in torch._foreach_norm(there)]  # noqa: SLF001 - see Folded

    def told(self) -> Carried | None:
        """Return what an event has of it; None where no backward was seen to begin. This reads from the device."""
        if not self.looked:
            return None
        found = [float(each) for each in self.norms]
        file, line = (self.site.file, self.site.line) if self.site else ("", 0)
        return Carried(sum(each > 0 for each in found), sum(each * each for each in found) ** 0.5, file, line)

    def forget(self) -> None:
        """Let go of all of it."""
        self.norms, self.site, self.looked = [], None, False


def _numbers(gradient: Any) -> Any:
    """Return what a gradient consists of on this rank: of a sharded one the shard, of a sparse one what is not zero."""
    import torch

    own = getattr(gradient, "_local_tensor", gradient)
    return own._values() if type(own) is torch.Tensor and own.layout is torch.sparse_coo else own  # noqa: SLF001 - values() wants it coalesced
