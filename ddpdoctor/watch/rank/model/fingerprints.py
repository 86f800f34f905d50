"""Linear fingerprints of tensors: a few numbers each, so that those of a sum are the sum of those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

WIDTH = 8192  # to which a tensor is folded: a bank of random numbers of this length serves all of them
PROJECTIONS = 4
SEED = 20_240_229
DIGITS = 7  # of a float32


class Fingerprint(NamedTuple):
    """Random projections of a folded tensor, and the norm that they are measured by.

    A fold adds up all parts of WIDTH numbers that a tensor consists of: it is linear too, and one pass over the tensor.
    """

    projections: tuple[float, ...]
    norm: float


class Fingerprints:
    """Takes fingerprints of tensors on whatever device they are; draws from a generator of its own alone."""

    def __init__(self) -> None:
        """Begin without random numbers: nothing is on a device before it is needed."""
        self._banks: dict[Any, Any] = {}

    def take(self, tensor: Any) -> Any:
        """Return projections and norm of a dense tensor, in one small tensor on its device; nothing is waited for."""
        import torch

        with torch.no_grad():
            flat = tensor.detach().reshape(-1)
            whole = flat.numel() // WIDTH * WIDTH
            fold = flat[whole:].to(torch.float32)
            if whole:
                body = flat[:whole].view(-1, WIDTH).sum(0, dtype=torch.float32)
                body[: fold.numel()] += fold
                fold = body
            bank = self._bank(fold.device)[:, : fold.numel()]
            return torch.cat([(bank * fold).sum(1), fold.norm().view(1)])

    def _bank(self, device: Any) -> Any:
        import torch

        if device not in self._banks:
            own = torch.Generator().manual_seed(SEED)
            self._banks[device] = torch.randn(PROJECTIONS, WIDTH, generator=own, dtype=torch.float32).to(device)
        return self._banks[device]


def is_dense(tensor: Any) -> bool:
    """Whether a tensor is one that ranks hold whole and each for itself: no DTensor, not sparse, not shared memory."""
    import torch

    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.is_floating_point()
        and tensor.device.type != "meta"
        and tensor.numel() > 0
        and not (tensor.device.type == "cpu" and tensor.is_shared())
    )


def read(taken: Sequence[Any]) -> list[tuple[float, ...] | None]:
    """Read fingerprints from their devices, all of a device at once; None stays None."""
    import torch

    found: list[tuple[float, ...] | None] = [None] * len(taken)
    by_device: dict[Any, list[int]] = {}
    for at, each in enumerate(taken):
        if each is not None:
            by_device.setdefault(each.device, []).append(at)
    for places in by_device.values():
        for at, values in zip(places, torch.stack([taken[each] for each in places]).tolist(), strict=True):
            found[at] = tuple(float(f"{value:.{DIGITS}g}") for value in values)
    return found
