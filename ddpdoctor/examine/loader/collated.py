"""Whether a loader can make a batch of the samples that its sampler chooses first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpdoctor.examine.loader.facts import Order

MOST = 64  # samples of a batch that are fetched for this
PATIENCE = 3.0  # seconds for all of them


def uncollated(loader: Any, order: Order) -> str:
    """Return what ``collate_fn`` raised for the whole first batch; empty where it did not, or was not asked.

    It is asked for a whole batch alone, as it is in the training: of large ones, and of data sets that fetch slowly,
    nothing is said. What fetching raises is told by others.
    """
    if getattr(loader, "batch_sampler", None) is None or not order.sizes or not 0 < order.sizes[0] <= MOST:
        return ""
    try:
        samples = _fetched(loader.dataset, list(order.indices[: order.sizes[0]]))
    except Exception:  # noqa: BLE001 - the user's code, of which the probes tell
        return ""
    if samples is None:
        return ""
    try:
        loader.collate_fn(samples)
    except Exception as exc:  # noqa: BLE001 - what it raises is what is asked for
        return f"{type(exc).__name__}: {' '.join(str(exc).split())}"[:400]
    return ""


def _fetched(dataset: Any, indices: list[Any]) -> list[Any] | None:
    """Fetch the samples as torch does; None where they take too long."""
    if callable(several := getattr(dataset, "__getitems__", None)):
        return several(indices)  # type: ignore[no-any-return]  # torch takes whatever it gives
    started, samples = time.monotonic(), []
    for index in indices:
        samples.append(dataset[index])
        if time.monotonic() - started > PATIENCE:
            return None
    return samples
