"""What objects of the user's classes hold beside parameters: coefficients, and statistics that samples meet.

They are looked for in the variables of the functions that train, before the batch of a compared step is drawn: what is
there then, no sample of that step has made. Nothing is changed, called or kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.examine.loader.generators import kinds
from ddpdoctor.watch.events import HeldGenerator
from ddpdoctor.watch.rank.compared.fingerprints import fold, is_dense
from ddpdoctor.watch.rank.data.dataset_digest import digest
from ddpdoctor.watch.rank.data.generators import seed_of, state_of
from ddpdoctor.watch.rank.model.beside.held import LISTED, State, Tensor
from ddpdoctor.watch.rank.model.beside.held_names import PLANE, STATISTIC, is_bank, is_told
from ddpdoctor.watch.user_frames import file_of, frames, is_users, variables_of

if TYPE_CHECKING:
    from types import FrameType

    from ddpdoctor.watch.rank.model.models import Models

OBJECTS = 300  # that are looked into
DEEPEST = 3
MODULES = 200  # of a model
TENSORS = 64
GENERATORS = 16
LARGEST = 200_000  # elements
MODEL = "model"
"""Where what a wrapper holds is said to be, if nothing of the user's names it."""
EXACT = 2**53
TOGETHER = 1_000_000  # elements
DROPOUT = "torch.nn.modules.dropout"


@dataclass(slots=True)
class Search:
    """One look at all that the functions hold which are being executed."""

    models: Models
    state: State = field(default_factory=State)
    looked: set[int] = field(default_factory=set)
    module: Any = None
    broadcast: set[int] = field(default_factory=set)
    elements: int = 0

    def __post_init__(self) -> None:
        """Find out whose buffers DDP gives to all ranks."""
        import torch

        self.module = torch.nn.Module
        self.broadcast = {id(part) for each in self._wrappers() if each.broadcast_buffers for part in each.modules()}

    def run(self) -> State:
        """Look into the user's functions."""
        for frame in frames():
            if is_users(frame.f_code.co_filename):
                for name, value in _variables(frame):
                    if isinstance(value, kinds()) and id(value) not in self.looked:
                        self._generator(name, value, "", file_of(frame.f_code))
                    self._visit(name, value, 0)
                    if _is_array(type(value)) and is_told(name, value):
                        self._variable(name, value, file_of(frame.f_code))
        for wrapper in self._wrappers():  # a framework's Trainer can be all that a function of the user's holds
            if not self.looked & {id(wrapper), id(wrapper.module)}:
                self._module(MODEL, wrapper.module)
        return self.state

    def _variable(self, name: str, value: Any, file: str) -> None:
        """Fold what a variable holds that can matter to samples, unless an inner function has one of that name."""
        if getattr(value, "requires_grad", False) or any(each.path == name for each in self.state.tensors):
            return
        if not hasattr(value, "is_cpu"):
            value = _as_tensor(value)
        few = value is not None and is_dense(value) and 0 < value.numel() <= LARGEST
        if few and len(self.state.tensors) < TENSORS:
            named = not is_bank(name, value)
            self.state.tensors.append(Tensor(name, "", file, tuple(value.shape), False, named, fold(value)))  # noqa: FBT003

    def _visit(self, path: str, value: Any, depth: int, owner: Any = None) -> None:
        kind = type(value)
        if issubclass(kind, float) or (kind is int and abs(value) < EXACT):  # numpy's are floats too
            self.state.numbers.setdefault(path, float(value))
        elif kind in {list, tuple, dict}:
            self._several(path, value, depth)
        elif _is_array(kind):
            self._tensor(path, value, owner)
        elif id(value) not in self.looked and len(self.looked) < OBJECTS and depth <= DEEPEST:
            self.looked.add(id(value))
            if isinstance(value, type):
                return
            if issubclass(kind, self.module):
                self._module(path, value)
            elif isinstance(value, kinds()) and owner is not None:
                self._generator(path, value, type(owner).__qualname__, _file_of(type(owner)))
            elif is_own(kind):
                for name, each in _attributes(value):
                    self._visit(f"{path}.{name}", each, depth + 1, value)

    def _generator(self, path: str, value: Any, kind: str, file: str) -> None:
        """Read the state of a random generator that an object holds, or a variable."""
        self.looked.add(id(value))
        if len(self.state.generators) < GENERATORS:
            state, seed = digest(state_of(value)), seed_of(value)
            self.state.generators.append(HeldGenerator(path, kind, file, state, seed))

    def _several(self, path: str, value: Any, depth: int) -> None:
        """Look at a few numbers, or objects, of a list or of a dict that is keyed by names."""
        if not 0 < len(value) <= LISTED or id(value) in self.looked:
            return
        self.looked.add(id(value))
        pairs = [*value.items()] if isinstance(value, dict) else [*enumerate(value)]
        for key, each in pairs:
            if type(key) in {str, int} and not _is_array(type(each)):
                self._visit(f"{path}[{key!r}]", each, depth + 1)

    def _module(self, path: str, root: Any) -> None:
        """Look at the modules of a model; what DDP gives to all ranks at each forward is no rank's own."""
        whole = next((each.module for each in self._wrappers() if each is root), root)
        path = path if whole is root else f"{path}.module"
        for at, (name, part) in enumerate(whole.named_modules()):
            if at >= MODULES:
                return
            self.looked.add(id(part))
            where = f"{path}.{name}" if name else path
            if type(part).__module__ == DROPOUT:
                rate = vars(part).get("p")
                if type(rate) in {int, float}:
                    self.state.rates[f"{where}.p"] = float(rate)
            elif is_own(type(part)):
                for attribute, each in [*_attributes(part), *part._buffers.items()]:  # noqa: SLF001
                    self._visit(f"{where}.{attribute}", each, DEEPEST, part)

    def _wrappers(self) -> list[Any]:
        return [each for model in self.models.alive() if (each := model.wrapper()) is not None]

    def _tensor(self, path: str, value: Any, owner: Any) -> None:
        """Fold a statistic; take a single number that lies on the host."""
        if getattr(value, "requires_grad", False):
            return
        if not hasattr(value, "is_cpu"):
            value = _as_tensor(value)
        if value is None or not is_dense(value) or value.numel() > LARGEST:
            return
        if value.numel() == 1:
            if value.is_cpu:
                self.state.numbers.setdefault(path, float(value))
        elif owner is not None and len(self.state.tensors) < TENSORS:
            self._hold(path, value, owner)

    def _hold(self, path: str, value: Any, owner: Any) -> None:
        """Fold what an object holds; of what DDP gives to all ranks at each forward only what can be a bank."""
        name, kind = path.rpartition(".")[2], type(owner)
        broadcast = id(owner) in self.broadcast and name in owner._buffers  # noqa: SLF001 - torch's own
        named = _is_statistic(name, owner, self.module)
        small = self.elements + value.numel() <= TOGETHER
        if (not named and not small) or (broadcast and value.dim() != PLANE):
            return
        self.elements += value.numel()
        self.state.tensors.append(
            Tensor(path, kind.__qualname__, _file_of(kind), tuple(value.shape), broadcast, named, fold(value))
        )


def _is_statistic(name: str, owner: Any, module: type) -> bool:
    """Whether an attribute has the name of a statistic; those of batch normalisation are each rank's, as in torch."""
    batch_norm = name.startswith("running_") and isinstance(owner, module)
    return bool(STATISTIC.search(name)) and not batch_norm


def _file_of(kind: type) -> str:
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or ""


def is_own(kind: type) -> bool:
    """Whether a class is the user's own."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" or (file is not None and is_users(file))


def _variables(frame: FrameType) -> Iterator[tuple[str, Any]]:
    yield from ((name, value) for name, value in variables_of(frame).items() if not name.startswith("__"))


def _attributes(value: Any) -> list[tuple[str, Any]]:
    held = getattr(value, "__dict__", None)
    names = {"_parameters", "_modules", "_buffers"}
    return [(name, each) for name, each in held.items() if name not in names] if isinstance(held, dict) else []


def _is_array(kind: type) -> bool:
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    return kind in {torch.Tensor, torch.nn.Parameter} or (numpy is not None and kind is numpy.ndarray)


def _as_tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array.copy()) if array.dtype.kind == "f" and 0 < array.size <= LARGEST else None
