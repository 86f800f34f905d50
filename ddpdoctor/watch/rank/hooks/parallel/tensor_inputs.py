"""What the layers of a tensor-parallel model are given: the same on all ranks of their group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import TensorParallelInput

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.recorder import Recorder

LOOKS = 3
"""Forwards of a layer that are looked at."""
LAYERS = 32
"""Layers that are looked at, the first ones that were split."""


@dataclass(slots=True)
class Layer:
    """A layer that was split: its turn among those, its group, and how many of its forwards were looked at."""

    number: int
    group: tuple[int, ...]
    looks: int = 0


class Inputs:
    """Hooks of the layers that are split by columns, and given the whole of their input."""

    def __init__(self, recorder: Recorder) -> None:
        """Look at no layer yet."""
        self.recorder = recorder
        self.layers = 0

    def look_at(self, module: Any, style: Any, group: tuple[int, ...]) -> None:
        """Look at what a layer is given from now on, where its style says that all ranks give the same."""
        layouts = getattr(style, "input_layouts", None) or ()
        whole = bool(layouts) and all(each is not None and each.is_replicate() for each in layouts)
        if type(style).__name__ == "ColwiseParallel" and whole and len(group) > 1 and self.layers < LAYERS:
            self.layers += 1
            module.register_forward_pre_hook(self._hook(Layer(self.layers, group)), prepend=True)

    def _hook(self, layer: Layer) -> Callable[..., None]:
        from torch import is_grad_enabled
        from torch.compiler import is_compiling

        def given(module: Any, inputs: tuple[Any, ...]) -> None:
            if is_compiling() or layer.looks >= LOOKS or not (module.training and is_grad_enabled()):
                return
            layer.looks += 1
            self.recorder.safely(self._tell, layer, inputs)

        return given

    def _tell(self, layer: Layer, inputs: tuple[Any, ...]) -> None:
        import torch

        from ddpdoctor.watch.rank.compiled import is_traced

        first: Any = inputs[0] if inputs else None
        if not hasattr(first, "numel") or hasattr(first, "placements") or is_traced() or not first.numel():
            return
        if not first.is_floating_point():
            return
        values = first.detach()  # summed as float64 as it is read: a copy of it need not fit into a GPU's memory
        self.recorder.emit(
            TensorParallelInput,
            group=layer.group,
            layer=layer.number,
            turn=layer.looks,
            sizes=tuple(first.shape),
            total=values.sum(dtype=torch.float64).item(),
            size=torch.linalg.vector_norm(values, 1, dtype=torch.float64).item(),
        )
