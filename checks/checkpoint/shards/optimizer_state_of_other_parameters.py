"""The state of an optimizer does not fit the parameters of this one.

## What happens

An optimizer's state goes by the order of its parameters, not by name. "loaded state dict contains a parameter group
that doesn't match the size of optimizer's group" or "has a different number of parameter groups" means that this
optimizer was given other parameters: frozen ones that were left out then and not now, a head that was added, groups
for weight decay that are made otherwise, an optimizer of a wrapped model under FSDP (flat parameters) against one of
the plain model. With equal counts and another order nothing is raised, and every moment lands on the wrong parameter.

## How to be sure

Compare `[len(g["params"]) for g in state["param_groups"]]` with `[len(g["params"]) for g in optimizer.param_groups]`;
`ddpdoctor inspect last.pt` shows the counts in the file. In a source (`ddpdoctor lint`): what
`FSDP.optim_state_dict(model, optimizer)` has gathered is loaded, and nothing in the file makes parts of it.

## How to mend it

Build model, freezing and groups exactly as in the run that saved, then load. Where the model has changed, load the
model's weights alone and begin with a new optimizer. Under FSDP use
`torch.distributed.checkpoint.state_dict.get_optimizer_state_dict` and `set_optimizer_state_dict`, which go by name;
what `FSDP.optim_state_dict` gave goes through `FSDP.optim_state_dict_to_load(model, optimizer, state)` first.

## Versions and sources

Holds for all versions of torch. Source: torch/optim/optimizer.py, `load_state_dict`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    FSDP,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Place,
    Record,
    Severity,
    lint,
    log_pattern,
    tree_of,
)

from ._whole_optimizer import TO_LOAD, loaded_as_they_are

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP814", Severity.ERROR)
SHARD = 1000  # elements of which a multiple is no chance
MOST_RANKS = 4096


@log_pattern(
    r"ValueError: loaded state dict "
    r"(?:(?P<size>contains a parameter group that doesn't match the size of optimizer's group)"
    r"|has a different number of parameter groups)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report what differs: the groups, or what is in one."""
    yield Finding(
        "the saved optimizer has "
        + ("a group with another number of parameters" if match["size"] else "another number of parameter groups")
        + " than this one",
        (record.proof(match, "the parameters and groups of the run that saved it"),),
        Fix(
            "build the optimizer as the run that saved it did; where the model has changed, begin with a new one",
            command="ddpdoctor inspect checkpoint.pt   # groups and parameters in the file",
            diff="-optimizer.load_state_dict(checkpoint['optimizer'])\n+model.load_state_dict(checkpoint['model'])",
        ),
        record.place,
    )


@log_pattern(r"RuntimeError: The state of _OptimStateKey\(unflat_param_names=\((?P<names>[^)\n]{0,300})")
def that_is_empty(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """FSDP's flat parameter had no gradient before the optimizer was saved, or has none where it is loaded."""
    if " is empty" not in record.text:
        return
    names = [name.strip(" '") for name in match["names"].split(",") if name.strip(" '")]
    shown = ", ".join(names[:2]) + (" and others" if names[2:] else "")
    yield Finding(
        f"the optimizer has no state for {shown}: these parameters had no gradient in the run that saved it",
        (record.proof(match, "a state of each parameter that the optimizer holds"),),
        Fix(
            "let them take part in the loss, or freeze them before the optimizer is made",
            diff="+for parameter in model.visual.parameters():\n+    parameter.requires_grad_(False)\n"
            " model = FSDP(model, use_orig_params=True)",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "no batch has used them: no sample has that part of the input, such as an image",
                "they were frozen in the run that saved the optimizer",
                "the optimizer was saved before its first step",
            ),
            "ddpdoctor run -- torchrun ... train.py   # names parameters without a gradient",
        ),
    )


@log_pattern(r"The size of tensor a \((?P<one>\d+)\) must match the size of tensor b \((?P<other>\d+)\)")
def at_its_step(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a step in which the state of a parameter and its gradient are of different sizes."""
    if not re.search(r"torch[/\\]optim[/\\]\w+\.py|\bexp_avg\w*\.", record.text):
        return
    if (whole := _whole_of(record, match)) is not None:
        yield whole
        return
    few, many = sorted((int(match["one"]), int(match["other"])))
    times = round(many / few) if few else 0
    # flat shards are padded by less than an element for each rank
    is_share = few >= SHARD and 1 < times <= MOST_RANKS and abs(many - few * times) <= times
    yield Finding(
        f"the optimizer's state and a gradient do not fit: {match['one']} and {match['other']} elements"
        + (f", {times} times as many" if is_share else ""),
        (record.proof(match, "a state of the shape of its parameter"),),
        Fix(
            "wrap or shard the model first, then make the optimizer of the parameters that it has now",
            diff="-optimizer = AdamW(model.parameters())\n model = FSDP(model)\n+optimizer = AdamW(model.parameters())",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                *_of_shards(times if is_share else 0, is_larger=int(match["one"]) == many),
                "the state was loaded from a run whose parameters had other shapes, or another order",
                "the optimizer was made of the parameters before the model was wrapped (FSDP makes flat ones of them)",
                "FSDP keeps flat parameters, and part of the model is used unsharded: set use_orig_params=True",
            ),
            "ddpdoctor inspect last.pt   # the shapes of the states; without a checkpoint it is the order of the lines",
        ),
    )


@log_pattern(r"output with shape \[(?P<one>[\d, ]*)\] doesn't match the broadcast shape \[(?P<other>[\d, ]*)\]")
def of_another_shape(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """In the optimizer's step a moment is written in place: its shape is its parameter's, or it is another one's."""
    inner = record.frames[-1].file if record.frames else ""
    if re.search(r"torch[/\\]optim[/\\]\w+\.py$", inner):
        yield Finding(
            f"the optimizer's state does not fit a gradient: shape [{match['one']}] meets [{match['other']}]",
            (record.proof(match, "a state of the shape of its parameter"),),
            Fix(
                "begin with a new optimizer to see whether the state is at fault; then load it as it was saved: of as "
                "many ranks, by names",
                command="ddpdoctor inspect last.pt   # the shapes of the states",
            ),
            record.place,
            ambiguity=Ambiguity(
                (
                    "the state was loaded from a run of other ranks, shapes or order, or this rank's share is empty",
                    "the optimizer was made of the parameters before the model was wrapped or sharded",
                ),
                "print([(p.shape, [getattr(v, 'shape', v) for v in s.values()]) for p, s in optimizer.state.items()])",
            ),
        )


@log_pattern(r"Tensors of the same index must be on the same device and the same dtype except `step`")
def on_other_devices(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Each parameter is updated with its gradient and its state: all three lie together."""
    resumed = re.search(r"\bresume\w*\b", record.text) is not None
    loaded = (
        "the state was loaded with map_location, or put back by the framework, onto another device or as another dtype"
    )
    moved = "the model was moved or cast (.to, .half) after the optimizer was made, or after its first step"
    offloaded = "FSDP offloads to the CPU, and a part of the parameters stays on the GPU"
    yield Finding(
        "a parameter, its gradient and its optimizer's state do not lie on one device, or have different dtypes",
        (record.proof(match, "all three on one device, of one dtype"),),
        Fix(
            "bring the state to its parameter after loading; move and cast the model before the optimizer is made",
            diff=" optimizer.load_state_dict(state)\n+for parameter, held in optimizer.state.items():\n"
            "+    for name, value in held.items():\n+        if torch.is_tensor(value) and name != 'step':\n"
            "+            held[name] = value.to(parameter.device, parameter.dtype)",
        ),
        record.place,
        ambiguity=Ambiguity(
            (loaded, moved, offloaded) if resumed else (moved, loaded, offloaded),
            "python - <<'E'   # or print this above the step\nfor p, held in optimizer.state.items():\n"
            "    print(p.device, p.dtype, {k: (v.device, v.dtype) for k, v in held.items() if torch.is_tensor(v)})\nE",
        ),
    )


def _whole_of(record: Record, match: re.Match[str]) -> Finding | None:
    """Return what is said where the script that failed loads the whole state of FSDP's optimizer as it is."""
    file = record.place.file
    found = next(loaded_as_they_are(tree_of(file)), None) if file else None
    if file is None or found is None:
        return None
    load, saved = found
    return Finding(
        f"the optimizer's state and a gradient do not fit: {match['one']} and {match['other']} elements. The whole "
        "state that FSDP gathered was loaded, and each rank holds a part",
        (
            record.proof(match, "a state of this rank's part of its parameter"),
            Evidence(ast.unparse(load), "what optim_state_dict_to_load makes of it", f"{file}:{load.lineno}"),
            Evidence(ast.unparse(saved), "", f"{file}:{saved.lineno}"),
        ),
        TO_LOAD,
        Place(file=file, line=load.lineno),
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a state that FSDP has gathered, and that the same file loads without having its part made of it."""
    for load, saved in loaded_as_they_are(script.tree) if any(script.calls(FSDP)) else ():
        yield Finding(
            f"{script.code(load.func)} is given the whole state that FSDP gathers, and each rank holds a part: the "
            "first step fails",
            (script.seen(load, "what FSDP.optim_state_dict_to_load makes of it"), script.seen(saved)),
            TO_LOAD,
            script.place(load),
        )


def _of_shards(times: int, *, is_larger: bool) -> tuple[str, ...]:
    """Return the cause of a state that is so many times as large, or as small; none where it is no multiple."""
    ranks = "fewer" if is_larger else "more"
    said = (
        f"the state is FSDP's flat shard of a run with {times} times {ranks} ranks: load a full or a sharded state dict"
    )
    return (said,) if times else ()
