"""FullyShardedDataParallel is used as if it were DDP: an optimizer before it, or torch's own clipping.

## What happens

FullyShardedDataParallel replaces the parameters by flat shards. An optimizer that was built before holds the old ones:
`step()` changes nothing, and nothing says so. `torch.nn.utils.clip_grad_norm_` sees the shard of its rank only: each
rank computes another norm, and clips by another factor.

## How to be sure

In a source (`ddpdoctor lint`): the optimizer is made of the parameters of the model in a line before the one that wraps
it, without `use_orig_params`; or the clipping is given the parameters of what is wrapped.

## How to mend it

    model = FullyShardedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model.clip_grad_norm_(1.0)

With FSDP2 (`fully_shard`) torch's clipping is right.

## Versions and sources

Measured with torch 2.13, gloo, 2 ranks: no parameter changes (with `use_orig_params=True` they do); the norms are 3.0
and 5.1 where the model's is 5.9. Source: PyTorch documentation, FullyShardedDataParallel. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    CLIP_NORM,
    FSDP,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Severity,
    by_parameter,
    given,
    is_open,
    keyword,
    lint,
)

from ._optimizers import is_built_again, is_optimizer_of

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Tree

AILMENT = Ailment("DDP555", Severity.ERROR)


@lint
def optimizer_before(script: Script) -> Iterator[Finding]:
    """Look for an optimizer of the bare parameters in the block that wraps the model later."""
    for wrap in script.calls(FSDP):
        model, statement = given(wrap, 0, "module"), script.tree.statement(wrap)
        if not isinstance(model, ast.Name) or statement is None or is_open(wrap) or keyword(wrap, "use_orig_params"):
            continue
        block = script.tree.block(statement)
        for before in block[: block.index(statement)] if statement in block else ():
            call = before.value if isinstance(before, ast.Assign) else None
            if (
                isinstance(call, ast.Call)
                and is_optimizer_of(script, call, model.id)
                and not is_built_again(script, before)
            ):
                yield Finding(
                    f"the optimizer holds the parameters of {model.id} from before sharding: its step changes nothing",
                    (script.seen(call, "after FullyShardedDataParallel"), script.seen(wrap)),
                    Fix("shard the model, then build the optimizer"),
                    script.place(call),
                )


@lint
def torch_clips(script: Script) -> Iterator[Finding]:
    """Look for torch's clipping of the parameters of what FullyShardedDataParallel holds."""
    for call in script.calls(CLIP_NORM):
        match call.args[0] if call.args else None:
            case ast.Call(func=ast.Attribute(value=model, attr="parameters"), args=[], keywords=[]):
                own = script.made_by(model, FSDP)
                wrap = own or _made_by_callers(script, model)
                strategy = keyword(wrap, "sharding_strategy") if wrap is not None else None
                if wrap is None or is_open(wrap) or (strategy is not None and not _shards(strategy)):
                    continue
                limit = script.code(call.args[1]) if len(call.args) > 1 else "max_norm"
                yield Finding(
                    f"each rank clips by the norm of its own shard of {script.code(model)}",
                    (script.seen(call, f"{script.code(model)}.clip_grad_norm_({limit})"), _seen(script, wrap, own)),
                    Fix("let FullyShardedDataParallel clip", diff=f"+{script.code(model)}.clip_grad_norm_({limit})"),
                    script.place(call),
                )


def _made_by_callers(script: Script, model: ast.expr) -> ast.Call | None:
    """Return the wrapping of a model that a function is handed, where all that hand it one have just wrapped it."""
    function = script.function(model)
    if not isinstance(model, ast.Name) or not isinstance(function, ast.FunctionDef):
        return None
    if any(not isinstance(each.node, ast.arg) for each in script.tree.lookup(model.id, model)):
        return None
    sites = script.sites_in(script.tree, function)
    wraps = [_last_made(script, tree, by_parameter(function, call).get(model.id)) for tree, call in sites]
    return wraps[0] if wraps and all(wraps) else None


def _last_made(script: Script, tree: Tree, handed: ast.expr | None) -> ast.Call | None:
    """Return the wrapping that a variable of a file was given last before a line that hands it on."""
    made = tree.lookup(handed.id, handed) if isinstance(handed, ast.Name) else []
    before = [each for each in made if handed is not None and each.line < handed.lineno]
    last = max(before, key=lambda each: each.line, default=None)
    call = last.value if last is not None else None
    return call if isinstance(call, ast.Call) and script.names_in(tree, call.func) == FSDP else None


def _seen(script: Script, wrap: ast.Call, own: ast.Call | None) -> Evidence:
    """Return the wrapping as evidence, of this file or of the one that calls its function."""
    if own is not None:
        return script.seen(wrap)
    return Evidence(" ".join(ast.unparse(wrap).split()), "", f"line {wrap.lineno} of the file that calls it")


def _shards(strategy: ast.expr) -> bool:
    return isinstance(strategy, ast.Attribute) and strategy.attr in {"FULL_SHARD", "SHARD_GRAD_OP"}
