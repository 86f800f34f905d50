"""What is told of a compared step once it is over: the fingerprints are read from the device here, and only here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import Factor, Statistic, StepFingerprinted
from ddpdoctor.watch.rank.compared.fingerprints import read
from ddpdoctor.watch.rank.compared.windows import Window, summed_losses
from ddpdoctor.watch.rank.data.described import has_subgroups
from ddpdoctor.watch.rank.ledger.accounts import GROUPS, options, summed
from ddpdoctor.watch.rank.modes import telling

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.graph.operands import Operands
    from ddpdoctor.watch.rank.ledger.accounts import Account
    from ddpdoctor.watch.rank.model.beside.held import State
    from ddpdoctor.watch.rank.model.models import Models, ProcessWithModels

RATES = 50  # of dropout


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen beside the account of an optimizer; ``parts`` are its parameters of which each rank has a part."""

    state: State
    operands: Operands
    rows: int
    parts: tuple[Any, ...]


def tell(recorder: ProcessWithModels, account: Account, optimizer: Any, seen: Seen) -> None:
    """Record a step that was compared."""
    count, state = len(account.parameters), seen.state
    local = [account.local.get(at) for at in range(count)]
    folds = [each for used in account.used for each in used.folds]
    held = [each.fold for each in state.tensors]
    prints = read([*local, *account.given[:count], *account.values[:count], *folds, *held])
    rest = iter(prints[3 * count :])
    exchanges = recorder.exchanges
    recorder.joined_unseen()
    recorder.emit(
        StepFingerprinted,
        optimizer=account.number,
        number=account.steps,
        local=tuple(prints[:count]),
        given=tuple(prints[count : 2 * count]),
        values=tuple(prints[2 * count : 3 * count]),
        added=tuple(account.added.get(at, 0) for at in range(count)),
        exchanges=summed(account.window),
        sent=tuple((operation, *counts) for operation, counts in exchanges.sent.items()),
        options=tuple(map(options, optimizer.param_groups[:GROUPS])),
        evaluating=_evaluating(account, recorder.models),
        still=_still(account, recorder.models),
        subgroups=has_subgroups(),
        hooks=tuple(hook for model in recorder.models.alive() for hook in model.hook_sites()),
        frozen=tuple(at for at, each in enumerate(account.parameters) if not each.requires_grad),
        state=account.state,
        backwards=exchanges.backwards,
        nested=exchanges.nested,
        clock=account.clock,
        bare=sum(each.requires_grad and each.grad is None and each.numel() > 0 for each in seen.parts),
        cleared=account.cleared,
        clips=tuple(account.clips),
        used=tuple(each.told([next(rest) for _ in each.folds]) for each in account.used),
        factors=_factors(account.window, state),
        statistics=tuple(
            Statistic(each.path, each.kind, each.file, each.size, next(rest), each.shape, each.broadcast, each.named)
            for each in state.tensors
        ),
        held_generators=tuple(state.generators),
        parts=account.parts.told(),
        without=account.parts.without(),
        numbers=tuple(seen.operands.found.values()),
        holdings=tuple(state.named(seen.operands.names())),
        rows=seen.rows,
        carried=account.left.told(),
        **_of_losses(account.window),
    )


def _factors(window: Window | None, state: State) -> tuple[Factor, ...]:
    return (
        *(
            Factor(each.operation, each.place, each.shape, each.value, state.paths(each.value))
            for each in (window.constants if window else ())
        ),
        *(Factor("dropout", 0, 0, value, (path,)) for path, value in [*state.rates.items()][:RATES]),
    )


def _evaluating(account: Account, models: Models) -> tuple[str, ...]:
    """Name the modules of wrapped models that hold these parameters and are in evaluation mode."""
    ours = set(map(id, account.parameters))
    found = []
    for model in models.alive():
        wrapper = model.wrapper()
        for name, module in wrapper.module.named_modules() if wrapper is not None else ():
            if not module.training and any(id(each) in ours for each in module.parameters(recurse=False)):
                found.append(name or type(module).__name__)
    return tuple(found[:GROUPS])


def _still(account: Account, models: Models) -> tuple[str, ...]:
    """Name what computes otherwise in training mode, of a wrapped model that is in evaluation mode as a whole."""
    ours = set(map(id, account.parameters))
    wrapped = [wrapper.module for model in models.alive() if (wrapper := model.wrapper()) is not None]
    held = [each for each in wrapped if any(id(parameter) in ours for parameter in each.parameters())]
    whole = [each for each in held if not any(part.training for part in each.modules())]
    return tuple(name for each in whole for name in telling(each, training=False))


def _of_losses(window: Window | None) -> dict[str, Any]:
    """Return what the losses of a step were computed with, and where their gradients were asked for. This reads."""
    if window is None:
        return {}
    site = window.backward
    return {
        "loss": summed_losses(window),
        "products": tuple(window.products),
        "divisors": tuple(sorted(window.divisors)),
        "terms": tuple(
            tuple(each.told(line) for each in loss) for loss, line in zip(window.terms, window.asked, strict=True)
        ),
        "backward": (site.file, site.line) if site else ("", 0),
    }
