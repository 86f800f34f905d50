"""Plain numbers that the user's own lines compute tensors with, in compared steps: thresholds, baselines, scales.

Tensor's operators are replaced while such a step is on its way, and put back after it; of most calls one looks at a
type alone. Nothing is replaced where code is compiled. Classes of tensors with a ``__torch_function__`` are handed
other functions (``Tensor.add``), and see no difference. The first compared steps are enough: Python 3.13 stops caching
the attributes of a class that changes a thousand times.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import Number
from ddpdoctor.watch.rank.compiled import has_compiled
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.user_frames import file_of, is_users

if TYPE_CHECKING:
    from types import CodeType

    from ddpdoctor.watch.rank.process import Process

OPERATORS = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "lt", "le", "gt", "ge", "isub", "imul",
             "itruediv", "iadd")  # fmt: skip
MOST = 64  # lines
STEPS = 12


@dataclass(slots=True)
class Operands:
    """The first number of each line and operator since the operators were replaced, and the code that it stands in."""

    recorder: Process
    found: dict[tuple[str, int, str], Number] = field(default_factory=dict)
    codes: set[CodeType] = field(default_factory=set)
    patches: list[Patch] = field(default_factory=list)
    thread: int = 0
    begun: int = 0

    def begin(self) -> None:
        """Replace the operators, if they are not replaced."""
        if self.patches or self.begun >= STEPS or has_compiled():
            return
        self.begun += 1
        import torch

        self.thread = threading.get_ident()
        names = [f"__{each}__" for each in OPERATORS]
        self.patches = [patch(torch.Tensor, each, self._looked(each.strip("_"))) for each in names]
        self.recorder.late += self.patches

    def end(self) -> None:
        """Put the operators back, and forget."""
        for each in reversed(self.patches):
            each.undo()
            self.recorder.late.remove(each)
        self.patches = []
        self.found.clear()
        self.codes.clear()

    def names(self) -> set[str]:
        """Return all names that the code says which computes with such numbers."""
        return {name for code in self.codes for name in (*code.co_names, *code.co_varnames, *code.co_freevars)}

    def _looked(self, operator: str) -> Wrap:
        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def operate(tensor: Any, *args: Any) -> Any:
                if args and isinstance(args[0], float) and self._is_plain(tensor):
                    frame = sys._getframe(1)  # noqa: SLF001 - as inspect.currentframe(), without a search
                    self.recorder.safely(self._look, operator, tensor, args[0], frame.f_code, frame.f_lineno)
                return original(tensor, *args)

            return operate

        return wrap

    def _is_plain(self, tensor: Any) -> bool:
        """Whether a tensor is one that the thread that trains computes with, and neither a fake nor traced."""
        import torch

        plain = type(tensor) in {torch.Tensor, torch.nn.Parameter}
        return plain and threading.get_ident() == self.thread and torch._C._get_tracing_state() is None  # noqa: SLF001 - what torch.jit.is_tracing() asks

    def _look(self, operator: str, tensor: Any, number: float, code: CodeType, line: int) -> None:
        """Keep a number that several numbers, or a loss, are computed with by a line of the user's."""
        if len(self.found) >= MOST or not is_users(code.co_filename):
            return
        key = code.co_filename, line, operator
        if key not in self.found and (tensor.numel() > 1 or tensor.requires_grad):
            self.codes.add(code)
            self.found[key] = Number(file_of(code), line, operator, float(number))
