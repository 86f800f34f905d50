"""Parameters that DDP leaves out: how they come to be averaged as well, or what is said where that is meant."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    ACCELERATE,
    FABRIC,
    LIGHTNING,
    TRAINER,
    Evidence,
    Finding,
    Fix,
    ParametersHeld,
    Severity,
    Site,
    Wrapped,
    last_name,
    place,
    tree_of,
)

from ..._words import counted, frozen_later, listed

if TYPE_CHECKING:
    from ddpdoctor.check import Training

LIST = "_ddp_params_and_buffers_to_ignore"
WRAPPERS = {"Ray Train": "ray.train.torch.prepare_model", "Ignite": "idist.auto_model"}
NAMELESS = "parameter "  # of no module of the model: told by its place in the optimizer, and its shape


def ignored(names: Sequence[str], wrapped: Sequence[Wrapped]) -> tuple[list[str], Wrapped | None]:
    """Return which of these are on the ignore list of a wrapped model, and the model."""
    for each in reversed(wrapped):
        if found := [name for name in names if name in each.ignored]:
            return found, each
    return [], None


def on_the_list(names: list[str], wrapped: Wrapped, seen: tuple[Evidence, ...]) -> Finding:
    """Say that DDP was told to ignore what is trained: right where each rank saves its own, and else not."""
    told = _list_at(wrapped)
    return Finding(
        f"{counted(len(names), 'parameter')} that the optimizer trains are on DDP's ignore list ({LIST}): each rank "
        f"trains {'its' if len(names) == 1 else 'their'} values by itself: {listed(names, 6)}",
        (*seen, Evidence(f"{counted(len(wrapped.ignored), 'parameter')} that want a gradient are on the list",
                         "those alone that each rank keeps for itself", str(told or wrapped.site))),
        Fix(
            "right where each rank saves its own; else leave on the list what is frozen alone",
            diff=f"+trained = {{name for name, each in model.named_parameters() if each.requires_grad}}\n"
            f"+model.{LIST} = [name for name in model.{LIST} if name not in trained]\n"
            " model = DistributedDataParallel(model)",
        ),
        place(told or wrapped.site),
        severity=Severity.NOTE,
    )  # fmt: skip


def _list_at(wrapped: Wrapped) -> Site | None:
    """Return the line that gives DDP the list: where torch's function was called, or the attribute is set."""
    if wrapped.ignored_at is not None or wrapped.site is None:
        return wrapped.ignored_at
    lines = [
        each.lineno
        for each in tree_of(wrapped.site.file).of(ast.Attribute)
        if each.attr == LIST and isinstance(each.ctx, ast.Store)
    ]
    return wrapped.site._replace(line=max(lines)) if lines else None


def wrap_as_well(training: Training, names: list[str], held: ParametersHeld) -> Fix:
    """Return how these parameters come to be averaged too, in the words of the framework."""
    framework = training.framework
    if framework is LIGHTNING and all(each.startswith(NAMELESS) for each in names):
        return Fix(
            "register them: Lightning wraps the LightningModule, which has no module of a plain list, tuple or dict",
            diff="-self.heads = [nn.Linear(32, 2) for _ in range(3)]\n"
            "+self.heads = nn.ModuleList(nn.Linear(32, 2) for _ in range(3))",
        )
    if framework is TRAINER:
        return frozen_later(training) or _into_the_model(_own_name(_owner(names, held), held.site), held.site)
    owner = _owner(names, held)
    if framework is FABRIC and owner:
        return frozen_later(training) or Fix(
            f"set {owner} up as well: what fabric.setup is not given has gradients of its own on each rank",
            diff=f"+{owner} = fabric.setup_module({owner})",
        )
    if framework is ACCELERATE:
        own = "-generator, optimizer = accelerator.prepare(generator, optimizer)\n"
        own += "+generator, critic, optimizer = accelerator.prepare(generator, critic, optimizer)"
        return frozen_later(training) or Fix("prepare each module that is trained", diff=own)
    wrapper = WRAPPERS.get(framework.name, "DDP") if framework is not None else "DDP"
    return frozen_later(training) or (_wrapping(owner, held.site, wrapper) if owner else _plain(names))


def _owner(names: list[str], held: ParametersHeld) -> str:
    """Return the variable that holds the module of these parameters; empty where it is not known, or one of many."""
    holders = {holder for name, holder in zip(held.names, held.holders, strict=False) if name in names}
    if holders != {""}:
        return holders.pop() if len(holders) == 1 else ""
    calls = tree_of(held.site.file).of(ast.Call) if held.site is not None else ()
    given = {
        ast.unparse(each.func.value)
        for call in calls
        if last_name(call.func) == "add_param_group"
        for each in ast.walk(call)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "parameters"
    }
    return given.pop() if len(given) == 1 else ""


def _own_name(owner: str, site: Site | None) -> str:
    """Return how the class that makes a module names it: an object's ``trainer.head`` is ``self.head`` there."""
    of_self = f"self.{owner.rpartition('.')[2]}"
    return of_self if "." in owner and not _made(owner, site) and _made(of_self, site) else owner


def _made(owner: str, site: Site | None) -> str:
    """Return the line of a file that gives a variable its module; empty where there is none, or it is a long one."""
    if site is None or not owner:
        return ""
    made = [
        ast.unparse(each.value)
        for each in tree_of(site.file).of(ast.Assign)
        if each.lineno <= site.line and owner in map(ast.unparse, each.targets)
    ]
    return made[-1] if made and "\n" not in made[-1] else ""


def _into_the_model(owner: str, site: Site | None) -> Fix:
    """Return how a module becomes a part of what the Trainer wraps."""
    name = owner.rpartition(".")[2] or "head"
    made = _made(owner, site)
    shown = f"-{owner} = {made}\n" if made else ""
    return Fix(
        f"make {owner or 'it'} a part of the model before train(), which wraps the model alone; it is then among what "
        "create_optimizer() takes",
        diff=f"{shown}+model.{name} = {made or owner or 'head'}\n trainer = Trainer(model=model, ...)",
    )


def _wrapping(owner: str, site: Site | None, wrapper: str) -> Fix:
    """Return the line that makes a module, and the one that wraps it."""
    made = _made(owner, site)
    shown = f" {owner} = {made}\n" if made else ""
    return Fix(
        f"wrap {owner} as well, where it is made: DDP averages what it is given, and {owner} is not part of that",
        diff=f"{shown}+{owner} = {wrapper}({owner})",
    )


def _plain(names: list[str]) -> Fix:
    if all(each.startswith(NAMELESS) for each in names):
        return Fix(
            "make them parameters of a module that is wrapped, or average their gradients before the step",
            diff="+for parameter in [each for group in optimizer.param_groups for each in group['params']]:\n"
            "+    dist.all_reduce(parameter.grad)\n+    parameter.grad /= dist.get_world_size()\n optimizer.step()",
        )
    owners = sorted({each.partition(".")[0] for each in names})
    return Fix("wrap each module that is trained", diff="\n".join(f"+{owner} = DDP({owner})" for owner in owners))
