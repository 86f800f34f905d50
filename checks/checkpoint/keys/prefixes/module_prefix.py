"""The keys of the checkpoint begin with module., the name under which DP and DDP hold the model.

## What happens

DataParallel and DistributedDataParallel keep the model as their child `module`, so the `state_dict()` of the wrapper
has `module.` before every key. Loaded into the bare model it raises 'Missing key(s) in state_dict: "conv1.weight" ...
Unexpected key(s) in state_dict: "module.conv1.weight"'; with `strict=False` it raises nothing and loads nothing. The
reverse, bare keys into a wrapped model, fails the same way.

## How to be sure

`ddpdoctor inspect last.pt` names the prefix. A layer of your own can be called `module`, too. With
`ddpdoctor check --checkpoint last.pt --model train.py:build_model` the model's own keys decide; without a model,
ddpdoctor prints that it assumes there is none.

In a source (`ddpdoctor lint`): `torch.save` is given the state dict of a model that is wrapped at that line, and
neither this file nor one in its reach loads a state dict into the wrapper or speaks of the prefix; or a state dict
whose keys have lost the prefix is loaded into a model that is wrapped at that line.

## How to mend it

Save the bare model, `model.module.state_dict()`. To mend a file that exists, without loading it:

    ddpdoctor repair last.pt -o last.bare.pt
    ddpdoctor repair last.pt --in-place          # ddpdoctor repair last.pt --undo takes it back
    ddpdoctor repair bare.pt --to ddp -o ddp.pt   # the other way

In a script, `ddpdoctor.load_state_dict(model, "last.pt")` loads either kind into either kind of model. A dict
comprehension that renames loses `_metadata`, and with it the versions of the layers. torch's own
`consume_prefix_in_state_dict_if_present` renames `_metadata`, too, but overwrites silently when both names exist.

## Versions and sources

Holds for all versions of torch; seen with torch 2.13 CPU. Source: PyTorch documentation, "Saving and Loading Models",
and the docstring of `consume_prefix_in_state_dict_if_present`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    by_parameter,
    lint,
    log_pattern,
)

from ..._look import few
from ..._reason import OTHER_NETWORK, Reason, on_refusal
from ..._refusal import refusal
from ._loaded import can_be_loaded_back, into_bare, key_of, strictly
from ._saved import saved
from ._stripped import is_stripped
from ._wrappers import Wrapper, facets

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Wrap

AILMENT = Ailment("DDP801", Severity.ERROR)
ALONE, BESIDE_THE_MODEL, IN_LOGS = facets(
    Wrapper(
        ("module",),
        "DataParallel or DistributedDataParallel",
        "torch.save(model.state_dict(), path)",
        "torch.save(model.module.state_dict(), path)",
        Reason.MODULE,
        ", assuming that no layer of the model itself is called module",
    )
)


@on_refusal(Reason.MODULE_ON_ONE_SIDE)
def cut_off_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave it open where the log shows one side only, and all of it begins with module."""
    refused = refusal(record, match, log)
    one_side = refused.missing or refused.unexpected
    expected = "the same keys without module. on the other side"
    yield Finding(
        f"{len(one_side)} keys that begin with module. are {'missing' if refused.missing else 'unexpected'}",
        (Evidence(few(one_side), expected, "load_state_dict"), *refused.evidence),
        Fix(
            "look at the file's keys; where module. is all that differs, write them anew",
            command="ddpdoctor repair last.pt --model train.py:build_model -o new.pt",
        ),
        record.place,
        ambiguity=Ambiguity(
            ("one side was saved or built in DataParallel or DDP, the other was not", OTHER_NETWORK),
            f"ddpdoctor inspect {refused.path} --keys",
        ),
    )


@log_pattern(r"KeyError: '(?P<key>module\.[\w.]+)'")
def of_one_key(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read which key the script asked for by its name under a wrapper."""
    bare = match["key"].removeprefix("module.")
    yield Finding(
        f"the script asks for {match['key']!r}, and what it looks into has no such key",
        (record.proof(match, f"the key as it was saved: {bare!r}, if the model was not wrapped then"),),
        Fix(
            "look at the file's keys, and ask for them without the wrapper's prefix",
            command="ddpdoctor inspect checkpoint.pt --keys",
            diff=f'-state["{match["key"]}"]\n+state["{bare}"]',
        ),
        record.place,
    )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for the state dict of a wrapped model that is saved, and that nothing in reach loads or renames."""
    for call, what in saved(script):
        for node in ast.walk(what):
            match node:
                case ast.Call(func=ast.Attribute(value=model, attr="state_dict"), args=[], keywords=[]):
                    wrap = script.wrap(model)
                    is_alone = any(each.is_alone(script.tree) for each in script.guards(node))
                    if wrap is not None and not wrap.sure and (is_alone or _is_apart(script, node, wrap)):
                        continue
                    loaded = into_bare(script, call, key_of(what, node)) if wrap is not None else None
                    if wrap is not None and (loaded is not None or not can_be_loaded_back(script, project, wrap)):
                        yield _saved(script, node, model, wrap, loaded)


@lint
def stripped_in_source(script: Script) -> Iterator[Finding]:
    """Look for a state dict without the prefix that is loaded into a model which is wrapped at that line."""
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(value=model, attr="load_state_dict"), args=[state]):
                wrap = script.wrap(model) or _of_some_caller(script, model)
                if wrap is None or not wrap.in_ranks or _is_told_apart(script, call) or not is_stripped(script, state):
                    continue
                strict = strictly(call)
                if strict is not None:
                    yield _loaded(script, call, model, wrap, is_strict=strict)


def _of_some_caller(script: Script, model: ast.expr) -> Wrap | None:
    """Return how a model is wrapped that a call of the file hands to the function that loads; another can hand a bare.

    None where the function gives the variable anything else.
    """
    function = script.function(model)
    if not isinstance(model, ast.Name) or not isinstance(function, ast.FunctionDef):
        return None
    bindings = script.tree.lookup(model.id, model)
    if len(bindings) != 1 or not isinstance(bindings[0].node, ast.arg):
        return None
    handed = [by_parameter(function, site).get(model.id) for site in script.sites(function)]
    wraps = [replace(wrap, sure=False) for each in handed if each is not None and (wrap := script.wrap(each))]
    return next((each for each in wraps if each.in_ranks), None)


TOLD_APART = re.compile(r"hasattr|isinstance|module|dist|ddp|parallel|world|gpu|multi|wrap|type\(", re.IGNORECASE)
"""Words of a test that can ask whether there is a wrapper."""


def _is_told_apart(script: Script, call: ast.Call) -> bool:
    """Whether a test before a line can have asked whether the model is wrapped, or what the keys begin with."""
    return any(TOLD_APART.search(script.code(each.test)) for each in script.guards(call))


def _loaded(script: Script, call: ast.Call, model: ast.expr, wrap: Wrap, *, is_strict: bool) -> Finding:
    name = script.code(model)
    bare = f"{name}.module" if wrap.sure else f'getattr({name}, "module", {name})'
    end = "all are missing, a RuntimeError" if is_strict else "none is loaded, and with strict=False no error says so"
    return Finding(
        f"keys without module. are loaded into {name}, the {wrap.kind} of line {wrap.line}: {end}",
        (script.seen(call, f"{bare}.load_state_dict({script.code(call.args[0])})"), script.seen(wrap.call)),
        Fix("load into the bare model", edits=(script.replaced(model, bare),)),
        script.place(call),
    )


def _is_apart(script: Script, node: ast.AST, wrap: Wrap) -> bool:
    """Whether a test that holds where the model is wrapped does not hold at a node."""
    wrapped = {part for each in script.guards(wrap.call) for part in _parts(script, each.test, holds=each.holds)}
    here = {part for each in script.guards(node) for part in _parts(script, each.test, holds=each.holds)}
    return any((code, not holds) in wrapped for code, holds in here)


def _parts(script: Script, test: ast.expr, *, holds: bool) -> Iterator[tuple[str, bool]]:
    """Yield the tests that hold for certain, or do not, where a test does."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _parts(script, operand, holds=not holds)
        case ast.BoolOp(op=operator, values=values) if isinstance(operator, ast.And) == holds:
            for each in values:
                yield from _parts(script, each, holds=holds)
        case _:
            yield script.code(test), holds


def _saved(script: Script, call: ast.Call, model: ast.expr, wrap: Wrap, loaded: ast.Call | None) -> Finding:
    right = f"{script.code(model)}.module.state_dict()"
    return Finding(
        f"the keys of what is saved begin with module.: {script.code(model)} is the {wrap.kind} of line {wrap.line}",
        (script.seen(call, right), script.seen(wrap.call), *([script.seen(loaded)] if loaded is not None else [])),
        Fix("save what is wrapped", edits=(script.replaced(call, right),) if wrap.sure else ()),
        script.place(call),
        severity=Severity.ERROR if loaded is not None else Severity.WARNING,
    )
