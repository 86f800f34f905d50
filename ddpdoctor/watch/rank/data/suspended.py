"""What the generator of an iterable data set holds in its variables when it has given a batch.

That is what it reads before anything is augmented, the order that it goes by, and random generators of its own. The
variables are looked at while it waits to be asked again, and nothing of them is called or kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, GeneratorType
from typing import TYPE_CHECKING, Any

from ddpdoctor.examine.loader.generators import kinds
from ddpdoctor.watch.events import StreamSeen
from ddpdoctor.watch.rank.data.dataset_digest import VALUES, digest, sketch_of_batch
from ddpdoctor.watch.rank.data.generators import seed_of, state_of
from ddpdoctor.watch.user_frames import is_users, site_of, variables_of

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.process import Process

PASSES, BATCHES = 3, 5  # that are looked at
DEEPEST = 4  # generators, one within the other
FEWEST, MOST = 4, 10_000  # elements of an order
NUMBERS = 4  # of a part of a batch, or of what is read
TEXT = 256  # characters


@dataclass(slots=True)
class Streams:
    """Looks at the first passes over what each generator's code gives, whichever loader asks."""

    recorder: Process
    passes: dict[CodeType, set[tuple[int, int]]] = field(default_factory=dict)

    def gave(self, loader: int, number: int, batch: int, iterator: Any, given: Any) -> None:
        """Tell of a batch that a loader without workers has just given."""
        frames = [each.gi_frame for each in _within(_source(iterator))]
        if batch > BATCHES or not frames:
            return
        passes = self.passes.setdefault(frames[0].f_code, set())
        if (loader, number) not in passes and len(passes) >= PASSES:
            return
        passes.add((loader, number))
        variables = {name: each for frame in reversed(frames) for name, each in variables_of(frame).items()}
        self.recorder.emit(
            StreamSeen,
            loader=loader,
            number=number,
            batch=batch,
            held=tuple((name, found) for name, each in variables.items() if (found := _content(each))),
            orders=tuple((name, *order) for name, each in variables.items() if batch == 1 and (order := _order(each))),
            drawers=tuple(_states(variables)),
            pieces=tuple(_content(each) for each in given) if isinstance(given, (list, tuple)) else (),
            site=site_of(frames[0]),
        )


def _source(iterator: Any) -> Any:
    return getattr(getattr(iterator, "_dataset_fetcher", None), "dataset_iter", None)


def _within(source: Any) -> Iterator[Any]:
    """Yield the user's generators that are suspended in one, innermost first."""
    found: list[Any] = []
    while isinstance(source, GeneratorType) and source.gi_frame is not None and len(found) < DEEPEST:
        if is_users(source.gi_code.co_filename):
            found.append(source)
        source = source.gi_yieldfrom
    yield from reversed(found)


def _content(value: Any) -> str:
    """Digest a tensor, an array or a text; empty for anything else, and for what is too small to tell samples apart."""
    if isinstance(value, (str, bytes)):
        return digest(value[:TEXT]) if len(value) >= NUMBERS else ""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        flat = value.ravel()
        return digest((value.shape, flat[:: (len(flat) // VALUES) | 1][:VALUES].tolist())) if len(flat) > 1 else ""
    if hasattr(value, "numel") and hasattr(value, "layout"):
        return digest(sketch_of_batch(value)) if value.device.type == "cpu" and value.numel() > 1 else ""
    return ""


def _order(value: Any) -> tuple[str, str, int] | None:
    """Digest a list of different numbers, or texts, that are in no order, and what it has whatever the order.

    An array, or a tensor on the CPU, of whole numbers in one row is as good as a list.
    """
    value = _listed(value)
    if not isinstance(value, list) or not FEWEST <= len(value) <= MOST or {*map(type, value)} not in ({int}, {str}):
        return None
    members = sorted(value)
    if len(set(value)) < len(value) or value in (members, members[::-1]):
        return None
    return digest(value), digest(members), len(value)


def _listed(value: Any) -> Any:
    """Return the whole numbers of a row as a list; anything else as it is."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        row = value.ndim == 1 and value.dtype.kind in "iu" and value.size <= MOST
        return value.tolist() if row else value
    if hasattr(value, "layout") and hasattr(value, "is_floating_point"):
        row = value.dim() == 1 and value.device.type == "cpu" and value.numel() <= MOST
        return value.tolist() if row and not value.is_floating_point() else value
    return value


def _states(variables: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the random generators among the variables, and among the attributes of what ``self`` is."""
    own = variables.get("self")
    held = {f"self.{name}": each for name, each in getattr(own, "__dict__", {}).items()}
    for name, each in {**held, **variables}.items():
        if isinstance(each, kinds()):
            yield name, digest(state_of(each)), seed_of(each)
