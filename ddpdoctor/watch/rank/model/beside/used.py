"""What a training calls beside the parameters of its optimizers: teachers, target networks, weights of a criterion.

A hook of torch's own for all modules is there while a sampled step is on its way, from the second one on. It is taken
away for good when torch.compile is called: a compiler looks at such hooks, and compiles anew where they change.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import EvaluatedInTraining, EvaluatedWith, Used
from ddpdoctor.watch.rank.compared.fingerprints import fold, is_dense, read
from ddpdoctor.watch.rank.compiled import has_compiled, is_traced
from ddpdoctor.watch.rank.model.parameter_names import modules_in_sight
from ddpdoctor.watch.rank.model.shards import is_dtensor
from ddpdoctor.watch.rank.modes import telling
from ddpdoctor.watch.user_frames import Place, lines_of_the_users, user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.model.shards import Shards
    from ddpdoctor.watch.rank.process import Process

ROOTS = 8  # modules of a step
CALLS = 20_000  # of modules, after which nobody steps any more
TENSORS = 400  # of a module
EVALUATIONS = 2  # that are looked at
COPIES = 6  # others that are looked at as well, each of a module that was put into evaluation mode for the first time
COMPUTED_WITH = re.compile(r"mean|std|var|scale|weight|mask|proj|embed|codebook|basis|freq|quantile|mu$|sigma$")
"""In the name of a buffer of a class of the user's own; others hold samples, or a rank's part of a graph."""


@dataclass(slots=True)
class Outermost:
    """A module that no other one has called, as it was before a step, with the folds of what it computes with."""

    kind: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    parameters: int
    folds: list[Any]
    site: Site | None
    variable: str

    def told(self, prints: list[tuple[float, ...] | None]) -> Used:
        """Return what an event has of it."""
        file, line = (self.site.file, self.site.line) if self.site else ("", 0)
        return Used(self.kind, self.names, self.sizes, self.parameters, tuple(prints), file, line, self.variable)


@dataclass(slots=True)
class Calls:
    """The outermost modules that were called since the hook was set, and the identities of all within them.

    ``trains``: those that are called to be trained are meant as well. ``held``: what is called is folded at once, but
    these parameters; the script can let go of it before anybody asks.
    """

    recorder: Process
    shards: Shards
    trains: bool = True
    roots: list[tuple[weakref.ref[Any], Site | None, str]] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    handle: Any = None
    count: int = 0
    held: set[int] | None = None
    folded: list[Outermost] = field(default_factory=list)
    training: list[tuple[str, tuple[str, ...], Place]] = field(default_factory=list)
    """Of an evaluation, what was called in training mode, and from where."""

    def begin(self) -> None:
        """Set the hook, if it is not set."""
        if self.handle is None and not has_compiled():
            from torch.nn.modules.module import register_module_forward_pre_hook

            self.count = 0
            self.handle = register_module_forward_pre_hook(self._called)

    def end(self) -> None:
        """Take the hook away, and forget."""
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
        self.roots.clear()
        self.known.clear()
        self.folded.clear()
        self.training.clear()

    def _called(self, module: Any, _: Any) -> None:
        if is_traced():
            return
        self.count += 1
        if not self.trains and module.training and _is_learning():
            return
        if id(module) not in self.known and self.count <= CALLS:
            self.recorder.safely(self._take, module)

    def _take(self, module: Any) -> None:
        self.known.update(map(id, module.modules()))
        if len(self.roots) < ROOTS and any(True for _ in chain(module.parameters(), module.buffers())):
            site, variable = user_site(), _variable(module)
            self.roots.append((weakref.ref(module), site, variable))
            if not self.trains and (names := telling(module, training=True)):
                whole = module.module if _is_wrapper(module) else module
                self.training.append((type(whole).__name__, names, lines_of_the_users()))
            if self.held is not None and (folded := self._folded(module, site, variable, self.held)) is not None:
                self.folded.append(folded)

    def replica(self, held: set[int]) -> Any:
        """Return the first module that was called and that optimizers hold all trained parameters of; None without."""
        for reference, *_ in self.roots:
            module = reference()
            trained = [each for each in module.parameters() if each.requires_grad] if module is not None else []
            if trained and all(id(each) in held for each in trained):
                return module
        return None

    def look(self, held: set[int]) -> list[Outermost]:
        """Fold what was called; ``held`` are the identities of what optimizers hold, which are compared elsewhere."""
        called = [(reference(), site, variable) for reference, site, variable in self.roots]
        found = [self._folded(module, site, variable, held) for module, site, variable in called if module is not None]
        return [each for each in found if each is not None]

    def _folded(self, module: Any, site: Site | None, variable: str, held: set[int]) -> Outermost | None:
        whole = module.module if _is_wrapper(module) else module
        named = list(whole.named_parameters())
        if any(is_dtensor(each) or self.shards.is_flat(each) for _, each in named):
            return None  # each rank holds a part
        parameters = [(name, each) for name, each in named if id(each) not in held and is_dense(each)][:TENSORS]
        named = [*parameters, *list(_buffers(whole))[:TENSORS]]
        if not named:
            return None
        names = tuple(name for name, _ in named)
        sizes = tuple(each.numel() for _, each in named)
        folds = [fold(each) for _, each in named]
        return Outermost(type(whole).__name__, names, sizes, len(parameters), folds, site, variable)


@dataclass(slots=True)
class EvaluationCalls:
    """What the first evaluations call, and the first ones of other modules: the hook is there meanwhile.

    ``trained`` gives the identities of what optimizers hold, which is asked where an evaluation is looked at, or a
    module is met, for the first time: a script can evaluate in each step.
    """

    calls: Calls
    trained: Callable[[], set[int]]
    begun: int = 0
    copies: int = 0
    met: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)

    def begin(self) -> None:
        """Begin to look, at the first evaluations of the process."""
        if self.begun < EVALUATIONS:
            self._look()

    def switched(self, module: Any) -> None:
        """Begin to look where a module is to evaluate that was not met so far, and that no optimizer trains."""
        if self.copies >= COPIES or module in self.met:
            return
        self.met.add(module)
        parameters = [id(each) for each in module.parameters()]
        if parameters and self.begun >= EVALUATIONS and not self.trained().issuperset(parameters):
            self.copies += 1
            self._look()

    def _look(self) -> None:
        if self.calls.handle is None:
            self.begun += 1
            self.calls.held = self.trained()
            self.calls.begin()

    def tell(self, recorder: Process) -> None:
        """Tell what was called, and look no further."""
        for module, names, callers in self.calls.training:
            recorder.emit(EvaluatedInTraining, number=self.begun, module=module, names=names, callers=callers)
        found = [*self.calls.folded]
        self.calls.end()
        prints = iter(read([fold for each in found for fold in each.folds]))
        told = [each.told([next(prints) for _ in each.folds]) for each in found]
        used = tuple(each for each in told if each.parameters)
        if used:
            recorder.emit(EvaluatedWith, number=self.begun, used=used)


def _variable(module: Any) -> str:
    """Return what the user's code holds a module by, of the outermost function that has a name for it."""
    paths = [path for path, each in modules_in_sight().items() if each is module]
    plain = [path for path in paths if not path.startswith("self.")]
    return (plain or paths or [""])[-1]


def _is_learning() -> bool:
    import torch

    return torch.is_grad_enabled()


def _is_wrapper(module: Any) -> bool:
    from torch.nn.parallel import DistributedDataParallel

    return isinstance(module, DistributedDataParallel)


def _buffers(whole: Any) -> Iterator[tuple[str, Any]]:
    """Yield the buffers of several numbers that a forward computes with."""
    for path, part in whole.named_modules():
        of_torch = type(part).__module__.startswith("torch.")
        for name, each in part.named_buffers(recurse=False):
            if is_dense(each) and each.numel() > 1 and (of_torch or COMPUTED_WITH.search(name)):
                yield f"{path}.{name}" if path else name, each
