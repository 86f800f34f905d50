"""A checkpoint is loaded onto a GPU that this machine does not have.

## What happens

A tensor is saved with its device, and torch.load puts it back there. A file of cuda:3 cannot be loaded this way where
there are two GPUs, or none: "Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 2".
It is usual on a smaller machine, on the laptop where a model is looked at, and under a launcher that shows each rank
one GPU. A `map_location` that names such a device, as `f"cuda:{rank}"` does, ends in the same words, wherever the file
was saved.

## How to be sure

The message has both numbers, the device that the file names and the number of devices that the process sees; or it
says that `torch.cuda.is_available()` is False. Whether the device is the file's or that of `map_location`, the
traceback tells: torch passes it on in `restore_location`. Started in the same way as the script,
`python -c "import torch; print(torch.cuda.device_count())"` prints the second number.

## How to mend it

Pass `map_location="cpu"` to torch.load. It is right for every machine and every rank: `load_state_dict` copies onto
the device where the model's parameters are.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/serialization.py, _validate_device; torch.load documentation,
"map_location".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP829", Severity.ERROR)


PASSED_ON = re.compile(r"default_restore_location\(storage, (?:str\()?(\w+)")
"""Torch's line that puts a tensor onto the device of ``map_location``, or of the ``location`` that the file names."""
ASKED_FOR = re.compile(r"^\s.*\bload\(.*map_location", re.MULTILINE)


@log_pattern(
    r"Attempting to deserialize object on (?:a )?(\w+) device (?:(\d+) but torch\.\w+\.device_count\(\) is (\d+)"
    r"|but torch\.\w+\.is_available\(\) is False)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read both numbers, or that there is no such device, and who named it."""
    kind, saved, there = match.groups()
    device = f"{kind} device {saved}" if saved else f"a {kind} device"
    has = f"the process sees {there}, numbered from 0" if there else "the process sees none"
    passed_on = PASSED_ON.search(record.text)
    is_named = passed_on[1] == "map_location" if passed_on else ASKED_FOR.search(record.text) is not None
    yield Finding(
        f"{'map_location names' if is_named else 'the checkpoint was saved from'} {device}, and {has}",
        (record.proof(match, "a device that is there"),),
        Fix(
            "load onto the CPU; load_state_dict copies to where the model is",
            diff=f'-torch.load(path{", map_location=..." if is_named else ""})\n+torch.load(path, map_location="cpu")',
        ),
        record.place,
    )


@log_pattern(r"don't know how to restore data location of \S+ \(tagged with (?P<kind>[a-z]\w*)(?::\d+)?\)")
def of_another_kind(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Torch knows devices of other packages (hpu, npu, xla, ...) once these are imported."""
    kind = match["kind"]
    package = PACKAGES.get(kind)
    yield Finding(
        f"the checkpoint was saved from a {kind} device, and nothing in this process knows such devices",
        (record.proof(match, "a device that is there"),),
        Fix(
            "load onto the CPU" + (f"; where the device is meant, import {package} before" if package else ""),
            diff='-torch.load(path)\n+torch.load(path, map_location="cpu")'
            + (f"\n+import {package}   # before torch.load" if package else ""),
        ),
        record.place,
    )


PACKAGES = {"hpu": "habana_frameworks.torch", "npu": "torch_npu", "xla": "torch_xla", "mlu": "torch_mlu"}


@log_pattern(r"IndexError: tuple index out of range")
def of_rng_states(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """See that the states of more GPUs' random numbers are set than this process sees."""
    if RNG_OF_ONE.search(record.text) and not RNG.search(record.text):
        yield Finding(
            "the state of the random numbers of a GPU is set that this process does not see",
            (record.proof(match, "a number below torch.cuda.device_count()"),),
            Fix(
                "have each rank save and set the state of its own GPU",
                diff="-torch.cuda.set_rng_state(state, device)\n+torch.cuda.set_rng_state(state)",
            ),
            record.place,
        )
    if not RNG.search(record.text):
        return
    yield Finding(
        "the checkpoint has states of random numbers of more GPUs than this process sees",
        (record.proof(match, "one state for each GPU that torch.cuda.device_count() counts"),),
        Fix(
            "have each rank save and set the state of its own GPU; for this checkpoint, set those that are there",
            diff="-torch.cuda.set_rng_state_all(states)\n"
            "+torch.cuda.set_rng_state_all(states[:torch.cuda.device_count()])",
        ),
        record.place,
    )


RNG_OF_ONE = re.compile(r"in set_rng_state\b(?s:.){0,900}torch\.cuda\.default_generators\[")
RNG = re.compile(r"in set_rng_state_all\b(?s:.){0,900}torch\.cuda\.default_generators\[")
