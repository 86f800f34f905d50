"""Products of matrices that losses are computed with, of several ranks."""

from __future__ import annotations

from ddpdoctor.check import Product, StepFingerprinted

FEWEST = 4  # rows
VIEWS = 8  # of a sample
LOGARITHMS = {"LogSoftmax", "Logsumexp", "LogSigmoid", "BinaryCrossEntropyWithLogits", "Log"}
MINED = {"Max", "Min", "Amax", "Amin", "Topk", "Sort", "Index", "MaskedSelect", "MaskedFill", "Where"}
HINGES = {"Relu", "Clamp", "ClampMin", "Softplus"}
LAYERS = {"Mm", "Addmm", "Bmm", "Convolution", "NativeLayerNorm", "NativeBatchNorm", "Embedding"}
"""What makes a distance part of a model, and not of its loss."""
ATTENTION = {"Softmax", "SafeSoftmax"}


def squares(ranks: dict[int, StepFingerprinted]) -> list[Product]:
    """Return the squares of similarities that all ranks have, each as large as the rank's own batch."""
    told = [[product for product in each.products if _is_square(product, each.rows)] for each in ranks.values()]
    return told[0] if all(told) else []


def _is_square(product: Product, rows: int) -> bool:
    """Whether a product compares the samples of a batch, or of views of it, with each other."""
    fits = rows >= FEWEST and product.rows % rows == 0 and product.rows // rows <= VIEWS
    way, square = set(product.way), product.rows == product.columns
    compares = product.unit and bool(way & LOGARITHMS)
    ranks = bool(way & MINED) and bool(way & HINGES) and not way & LAYERS  # distances of hard triplets
    return fits and square and product.both and (compares or ranks) and not way & ATTENTION


def gathers(steps: list[dict[int, StepFingerprinted]]) -> bool:
    """Whether ranks have given each other anything but sums in one of these steps."""
    names = {each.operation for ranks in steps for step in ranks.values() for each in step.exchanges}
    return any("gather" in name or "broadcast" in name or "all_to_all" in name for name in names)
