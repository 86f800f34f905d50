"""torch.compile compiles one function again and again: much of the time goes to the compiler.

## What happens

What is compiled holds for the shapes and the numbers that it was compiled with. With `dynamic=False` each new length
of a sequence, and each new value of a Python number that the model reads, is compiled anew: seconds for a step that
takes milliseconds. After so many versions (`recompile_limit`, 8) torch gives up, and runs the function uncompiled.

## How to be sure

`TORCH_LOGS=recompiles` prints each, and why. ddpdoctor asks torch after 20 steps, 40, 80 and so on what it has compiled
since, and finds a function of which five versions or more were made from one of these looks to the next, where that
took a fifth of the time or more; or a function that torch has given up.

## How to mend it

Let sizes differ: `torch.compile(model, dynamic=True)`, or `torch._dynamo.mark_dynamic(x, 1)` for the one dimension that
does. Or pad to a few lengths: to the next multiple of 64. Keep counters as tensors, not as Python numbers.

## Versions and sources

Seen with torch 2.13 and 2.15; torch 2.2 keeps no list of what it has compiled, and nothing is found there. Source:
PyTorch documentation, "torch.compiler", "Recompilation".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, CompiledAnew, Evidence, Finding, Fix, Place, Severity, Training, watch

AILMENT = Ailment("DDP920", Severity.NOTE)
LARGE = 0.2  # of the time
SHOWN = 200  # characters


@watch(CompiledAnew)
def while_training(event: CompiledAnew, training: Training) -> Iterator[Finding]:
    """Tell of the first rank on which compiling takes much of the time."""
    before = [each for each in training.of(CompiledAnew) if each is not event]
    if before or (event.seconds < LARGE * event.within and not event.given_up):
        return
    steps = event.steps - event.steps // 2
    why = " ".join(event.why.split())[:SHOWN]
    said = f"torch.compile has compiled {event.function}() {event.times} times again in {steps} steps: "
    said += f"{event.seconds:.1f} of {event.within:.1f} s, {event.seconds / max(event.within, 1e-9):.0%}"
    if event.given_up:
        said = f"torch.compile has given {event.function}() up after {event.times} versions: it runs uncompiled since"
    versions = f"{event.times} versions of {event.function}() from step {event.steps // 2} to step {event.steps}"
    yield Finding(
        said,
        (
            Evidence(
                f"{event.times} versions of {event.function}() by step {event.steps}, which took {event.seconds:.1f} s"
                if event.given_up
                else versions,
                "none after the first steps",
                f"rank {event.rank}",
            ),
            *([Evidence(why, "", "why, as torch says of the last one")] if why else []),
        ),
        Fix(
            "let sizes differ, or pad to a few of them; keep numbers that change as tensors",
            diff="-model = torch.compile(model)\n+model = torch.compile(model, dynamic=True)",
        ),
        Place(file=event.file, line=event.line, rank=event.rank),
    )
