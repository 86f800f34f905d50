"""A Python loop over numbers, or pieces of a tensor, that most of the loading goes to: in a data set or a collation."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import CallsTimed, LineKind, Training, tree_of

from .._lines import of_kind
from ..source._at_line import FILLED, NUMBERS, what_at

MUCH = 0.4  # of the loading
COUNTED = {"range", "enumerate", "zip"}
NUMBER = {"int", "float", "bool", "item"}
INSTEAD = {
    NUMBERS: "take whole rows: tolist() of a tensor at once, torch.nn.utils.rnn.pad_sequence to fill up, "
    "torch.arange(longest) < lengths[:, None] for a mask",
    FILLED: "make the tensor at once: by an index of all places (torch.gather, tensor[rows, columns]), torch.stack, or "
    "what the library has for it",
}


@dataclass(frozen=True, slots=True)
class SlowLoop:
    """A loop: where it begins, what it goes through, the share of the time on the rank that it takes least of.

    ``calls`` of tensors were counted in a step in its lines, 0 where none were.
    """

    file: str
    line: int
    kind: str
    share: float
    calls: float

    @property
    def said(self) -> str:
        """What it does."""
        what = "goes through numbers one by one" if self.kind == NUMBERS else "fills a tensor piece by piece"
        often = f", {self.calls:,.0f} reads of a tensor a step" if self.calls else ""
        return f"the loop at {self.file}:{self.line} {what}{often}: {self.share:.0%} of the time"


def slow_loop(training: Training) -> SlowLoop | None:
    """Return the loop that most of the loading goes to, on each rank; None where there is none."""
    found: list[tuple[float, tuple[str, int, str]]] = []
    for _, told, line in of_kind(training, LineKind.DATA):
        spent: dict[tuple[str, int, str], int] = {}
        for file, number, _function, clock, *_ in line.inside:
            if (at := _loop(file, number)) is not None:
                key = (file, *at)
                spent[key] = spent.get(key, 0) + clock
        most = max(spent, key=spent.__getitem__, default=None)
        if most is None or spent[most] < MUCH * line.nanoseconds:
            return None
        found.append((spent[most] / max(1, told.nanoseconds), most))
    if not found or len({key for _, key in found}) > 1:
        return None
    share, (file, number, kind) = min(found)
    return SlowLoop(file, number, kind, share, _reads(training, file, number))


def _reads(training: Training, file: str, number: int) -> float:
    """Return how many tensors a step reads one by one in the lines of a loop."""
    loops = [each for each in tree_of(file).of(ast.For) if each.lineno == number]
    last = max((each.end_lineno or 0 for each in loops), default=0)
    return max(
        (
            sum(
                call.times / max(1, told.steps)
                for call in told.calls
                if call.what.startswith("Tensor.") and call.file == file and number <= call.line <= last
            )
            for told in training.by_rank(CallsTimed).values()
        ),
        default=0.0,
    )


@functools.cache
def _loop(file: str, number: int) -> tuple[int, str] | None:
    """Return the line of the loop that a line stands in, and what it goes through; None where it is another loop."""
    at = what_at(file, number)
    if at is not None:
        return (at[2], at[0]) if at[0] in {NUMBERS, FILLED} and at[1] == file else None
    inside = [each for each in tree_of(file).of(ast.For) if each.lineno <= number <= (each.end_lineno or 0)]
    innermost = max(inside, key=lambda each: each.lineno, default=None)
    return (innermost.lineno, NUMBERS) if innermost is not None and _appends_numbers(innermost) else None


def _appends_numbers(loop: ast.For) -> bool:
    """Whether a counted loop does nothing but append numbers, of an index each, to lists."""
    through = loop.iter
    if not (isinstance(through, ast.Call) and isinstance(through.func, ast.Name) and through.func.id in COUNTED):
        return False
    leaves = list(_leaves(loop.body))
    calls = [each.value for each in leaves if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    appends = [
        each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == "append" and each.args
    ]
    return len(leaves) == len(appends) and any(_is_number_of_an_index(each.args[0]) for each in appends)


def _is_number_of_an_index(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    return name in NUMBER and any(isinstance(each, ast.Subscript) for each in ast.walk(node))


def _leaves(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for each in body:
        if isinstance(each, ast.If):
            yield from _leaves([*each.body, *each.orelse])
        else:
            yield each
