"""load_state_dict loaded nothing, or next to nothing, and raised no error.

## What happens

With `strict=False`, `load_state_dict` passes over keys that the module does not have, and leaves what the file does
not have as it was initialised. Then none of these is an error: a prefix that a wrapper added to every key (`module.`,
`_orig_mod.`), a state dict that lies deeper in the file, the file of another network. The training goes on from
random weights.

## How to be sure

Print what `load_state_dict` returns: nearly all keys are missing or unexpected. ddpdoctor (`ddpdoctor run`) reports a
load where at most one in a hundred of the given keys is one of the module's. It looks at the last load into each kind
of module, when the first optimizer steps or the training ends, so a script that tries several prefixes is not
reported once one of them fits.

Where a script takes from the file what it finds among the model's own keys, and loads that over the model's own state
dict, nothing is missing and nothing unexpected: the module is given the values that it has. ddpdoctor reports it where
the keys of the file that was read last are the module's but for a prefix.

## How to mend it

Give the file the keys of the model, with the command of the finding. Use `strict=False` only for loads that are meant
to be partial, and check what it returns.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Module.load_state_dict".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ended,
    Evidence,
    Finding,
    Fix,
    Loaded,
    OptimizerSeen,
    Severity,
    Training,
    place,
    watch,
)

from .._look import few, repair_command
from .._reason import CONTAINERS, Reason, reason
from .._refusal import Refusal

if TYPE_CHECKING:
    from ddpdoctor.check import Strip

AILMENT = Ailment("DDP850", Severity.ERROR)
COMPILED = "_orig_mod"
FEW = 0.01  # of the keys


@watch(OptimizerSeen)
def when_training_begins(event: OptimizerSeen, training: Training) -> Iterator[Finding]:
    """Look at what this process has loaded so far."""
    yield from _judged(training.of(Loaded, pid=event.pid))


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Look at all that was loaded."""
    for pid in {each.pid for each in training.of(Loaded)}:
        yield from _judged(training.of(Loaded, pid=pid))


def _judged(loads: list[Loaded]) -> Iterator[Finding]:
    last = {(load.kind, load.wanted, load.own): load for load in loads}
    for load in last.values():
        if load.own and any(each.matched == load.given and not each.own for each in loads):
            continue  # the file was for another module
        if load.missing and load.unexpected and load.matched <= FEW * min(load.given, load.wanted):
            yield from _finding(load)


def _finding(load: Loaded) -> Iterator[Finding]:
    why, in_file, in_model = reason(Refusal("", load.missing, load.unexpected, (), (), silent=True))
    said = f"load_state_dict(strict=False) loaded {load.matched or 'none'} of {load.given} keys into {load.kind}"
    if load.own:
        if not in_file.segments:
            return  # the file of another network, of which nothing is wanted
        said = f"load_state_dict gave {load.kind} the values that it had: none of the {load.given} keys of {load.path}"
    yield Finding(
        said + _because(why, in_file, in_model),
        (
            Evidence(
                f"keys {'of the file' if load.own else 'that were given'}: {few(load.unexpected)}",
                f"the model's: {few(load.missing)}",
                load.path,
            ),
            Evidence(f"{load.matched} of {load.given} keys match", "most of them", f"rank {load.rank}"),
        ),
        _fix(load, why, in_file, in_model),
        place(load.site, key=load.unexpected[0]),
    )


def _because(why: Reason | None, in_file: Strip, in_model: Strip) -> str:
    if in_file.segments:
        return f": those of the file carry {in_file}"
    if in_model.segments:
        return f": those of the model carry {in_model}"
    return ": the state dict lies deeper in what was given" if why is Reason.NESTED else ""


def _fix(load: Loaded, why: Reason | None, in_file: Strip, in_model: Strip) -> Fix:
    path = load.path or "last.pt"
    if in_file.segments:
        command, new = repair_command(path)
        later = ""
        if in_file.segments == (COMPILED,):
            later = "; in what saves, take the state of the module that was compiled: net._orig_mod.state_dict()"
        return Fix(f"write {new} without {in_file}, and load that{later}", command)
    if in_model.segments:
        child = "".join(f".{segment}" for segment in in_model.front) or ".module"
        return Fix(
            "load into the bare model, before it is wrapped",
            diff=f"-model.load_state_dict(state, strict=False)\n+model{child}.load_state_dict(state)",
        )
    inner = next((key for key in load.unexpected if key in CONTAINERS), None)
    if why is Reason.NESTED and inner:
        return Fix(
            "load what lies under the key",
            diff=f'-model.load_state_dict(state, strict=False)\n+model.load_state_dict(state["{inner}"])',
        )
    return Fix("compare the file's keys with the model's", command=f"ddpdoctor inspect {path} --keys")
