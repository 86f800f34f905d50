"""How parameters without a gradient are mended: used, frozen, or looked for by DDP, as far as that was seen to work."""

from __future__ import annotations

from ddpdoctor.check import Fix

from .._logs import BY_HAND
from .._words import SHOWN

IN_FORWARD = "use these parameters in forward or delete them; else "
NO_HELP = (
    "find_unused_parameters=True was tried here and does not help; DDP looks into tensors, tuples, lists, dicts and "
    "dataclasses alone that forward returns"
)


def mend(unused: tuple[str, ...], cut: list[str], *, cured: bool | None) -> Fix:
    """Return the ways; ``cured`` tells whether the steps went through while DDP searched, None where it did not."""
    first = (
        "freeze what is not to be trained, and call the rest outside no_grad()" if cut else f"{IN_FORWARD}freeze them"
    )
    if cured is False and 0 < len(unused) <= SHOWN:
        return Fix(f"{first} ({NO_HELP})", diff=f"{frozen(unused)} model = DDP(model)")
    return Fix(
        f"{first}{'; else' if cut else ', or'} let DDP look for them"
        + (" (tried here: three steps go through)" if cured else ""),
        diff=diff_of(unused),
    )


def diff_of(unused: tuple[str, ...], search: str = BY_HAND) -> str:
    """Return the lines that freeze the parameters, where they are few, and those that let DDP search."""
    line = f"-model = DDP(model)\n+model = {search}" if search == BY_HAND else f"+{search}"
    if not 0 < len(unused) <= SHOWN:
        return line
    wrap = " model = DDP(model)\n" if search == BY_HAND else ""
    return f"{frozen(unused)}{wrap}or\n{line}"


def frozen(unused: tuple[str, ...]) -> str:
    """Return the lines that freeze them."""
    return f"+for name in {list(unused)}:\n+    model.get_parameter(name).requires_grad_(False)\n"
