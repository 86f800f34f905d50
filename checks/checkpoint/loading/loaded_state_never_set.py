"""torch.distributed.checkpoint has loaded into a copy, which nobody gives back to the model.

## What happens

`dcp.load(state, ...)` fills the tensors of the dictionary that it is given. Those of `model.state_dict()` are the
model's own. Those of `get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))`, or with
`cpu_offload=True`, are copies: unless `set_model_state_dict` gives them back, the model keeps its random weights. The
training goes on with a loss that is that of the first step.

## How to be sure

In a source (`ddpdoctor lint`): the dictionary that `dcp.load` is given was made with one of these options, and nothing
in reach sets or loads a state dict.

## How to mend it

    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(model, state["model"], options=options)

## Versions and sources

Source: torch/distributed/checkpoint/state_dict.py, `StateDictOptions`. Holds for torch 2.2 and later.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, keyword, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP858", Severity.ERROR)
LOADS = ("torch.distributed.checkpoint.load", "torch.distributed.checkpoint.state_dict_loader.load")
STATE = "torch.distributed.checkpoint.state_dict."
GETS = (f"{STATE}get_model_state_dict", f"{STATE}get_state_dict")
COPIES = ("full_state_dict", "cpu_offload")
SETS = r"set_model_state_dict\(|set_state_dict\(|load_state_dict\(|\bStateful\b"


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a load into what get_model_state_dict has copied."""
    if project.does(SETS):
        return
    for load in script.calls(*LOADS):
        given = load.args[0] if load.args else keyword(load, "state_dict")
        held = script.value(given) if given is not None else None
        parts = [held, *(script.value(each) for each in held.values)] if isinstance(held, ast.Dict) else [held]
        calls = [each for part in parts if part is not None for each in ast.walk(part) if isinstance(each, ast.Call)]
        for call in dict.fromkeys(calls):
            option = _copies(script, call)
            if option is not None:
                yield Finding(
                    f"dcp.load fills a copy, made with {script.code(option)}: the model keeps the weights that it has",
                    (script.seen(load, "set_model_state_dict(model, ...) after it"), script.seen(call)),
                    Fix(
                        "give what was loaded back to the model",
                        diff=f' {script.code(load)}\n+set_model_state_dict(model, state["model"], options=options)',
                    ),
                    script.place(load),
                )


def _copies(script: Script, call: ast.Call) -> ast.keyword | None:
    """Return the option by which a call of get_model_state_dict copies the weights; None where it does not."""
    options = keyword(call, "options") if script.resolve(call.func) in GETS else None
    made = script.value(options) if options is not None else None
    for option in made.keywords if isinstance(made, ast.Call) else ():
        if option.arg in COPIES and isinstance(option.value, ast.Constant) and option.value.value is True:
            return option
    return None
