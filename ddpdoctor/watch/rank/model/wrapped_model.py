"""One model that DistributedDataParallel holds: what it was when it was wrapped, and what went through it since."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ddpdoctor.watch.rank.compared.gradients import ByHand, norms
from ddpdoctor.watch.user_frames import user_site


class Stray(NamedTuple):
    """A parameter that requires a gradient and that DDP does not average; ``why`` says since when."""

    name: str
    why: str
    parameter: Any


@dataclass(slots=True)
class Model:
    """A model that DistributedDataParallel holds; ``forwards`` and ``synced`` only grow.

    ``trainable`` maps the identity of each parameter that DDP reduces to its name and its device at that time; the
    wrapper keeps these parameters alive; ``ignored`` maps others, which DDP was told to ignore, to their names.
    ``skipped``: a forward within no_sync was told; ``stepped_within``: a step right after one was; ``spotted``: a call
    past the wrapper was looked for. ``reduced`` has the norms that the last backward left, in the first steps.
    """

    number: int
    wrapper: weakref.ref[Any]
    names: frozenset[str]
    trainable: dict[int, tuple[str, str]]
    ignored: dict[int, str] = field(default_factory=dict)
    forwards: int = 0
    synced: int = 0
    last_synced: bool = True
    skipped: bool = False
    stepped_within: bool = False
    spotted: bool = False
    evaluated: list[int] = field(default_factory=list)
    reduced: dict[str, float] = field(default_factory=dict)
    by_hand: ByHand | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the model has now, by name; none when it is gone."""
        wrapper = self.wrapper()
        return {} if wrapper is None else dict(wrapper.module.named_parameters())

    def unmanaged(self, named: dict[str, Any], held: set[int]) -> Iterator[Stray]:
        """Find which of its parameters an optimizer holds and DDP does not average, for what was done since."""
        ignored = set(getattr(self.wrapper(), "parameters_to_ignore", ()))
        for name, parameter in named.items():
            known = id(parameter) in self.trainable or name in ignored
            if parameter.requires_grad and not known and id(parameter) in held:
                yield Stray(name, "was frozen" if name in self.names else "was not there", parameter)

    def thawed(self, named: dict[str, Any], names: Iterable[str]) -> tuple[str, ...]:
        """Return which of its parameters, of these names, were frozen when DDP wrapped the model."""
        ignored = set(getattr(self.wrapper(), "parameters_to_ignore", ()))
        return tuple(
            name
            for name in names
            if name in self.names and name not in ignored and id(named.get(name)) not in self.trainable
        )

    def moved(self, named: dict[str, Any]) -> Iterator[str]:
        """Yield which of its parameters are on another device than when DDP wrapped the model."""
        for name, parameter in named.items():
            known = self.trainable.get(id(parameter))
            if known is not None and known[1] != str(parameter.device):
                yield f"{name} from {known[1]} to {parameter.device}"

    def reduces(self, operation: str, addresses: set[int]) -> None:
        """Take note of a reduction by hand of what lies at these addresses, where it is a gradient that DDP reduced."""
        for name, parameter in self.parameters().items():
            if name in self.reduced and parameter.grad is not None and parameter.grad.data_ptr() in addresses:
                if self.by_hand is None:
                    (norm,) = norms([parameter.grad])
                    self.by_hand = ByHand(operation, user_site(), [], (norm or 0.0) / self.reduced[name])
                self.by_hand.names.append(name)

    def hook(self) -> str:
        """Return the name of the communication hook that stands in for DDP's average; empty where there is none."""
        return ", ".join(name for name, *_ in self.hook_sites())

    def hook_sites(self) -> tuple[tuple[str, str, int], ...]:
        """Return name, file and line of each communication hook; no file of one that Python has not compiled."""
        hooks = [each for each, _ in getattr(self.wrapper(), "_comm_hooks", ())]
        codes = [getattr(each, "__code__", None) for each in hooks]
        return tuple(
            (getattr(each, "__name__", type(each).__name__), getattr(code, "co_filename", ""),
             getattr(code, "co_firstlineno", 0))
            for each, code in zip(hooks, codes, strict=True)
        )  # fmt: skip
