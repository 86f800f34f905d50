"""A hook is registered again and again, and none is removed: each step calls more of them.

## What happens

`module.register_forward_hook(...)` in a function that runs in each step, epoch or evaluation adds one more hook each
time. All of them run in each forward, so that steps become longer and longer, and what the hooks hold is never freed.

## How to be sure

Print `len(module._forward_hooks)` in each epoch. ddpdoctor counts the hooks of one function on one module of a wrapped
model after 20 steps, 40, 80 and so on, and finds them where they became more from each of three such looks to the next,
and are six or more.

## How to mend it

Register once, before the loop; or keep the handle that `register_forward_hook` returns, and call `handle.remove()`
when what it is for is done.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, `torch.nn.Module.register_forward_hook`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, HooksPiledUp, Place, Severity, Training, watch

AILMENT = Ailment("DDP919", Severity.WARNING)


@watch(HooksPiledUp)
def while_training(event: HooksPiledUp, training: Training) -> Iterator[Finding]:
    """Tell of the first rank where hooks became more and more."""
    if not event.counts or any(each is not event for each in training.of(HooksPiledUp)):
        return
    looks = [event.steps // 2**before for before in reversed(range(len(event.counts)))]
    seen = ", ".join(f"{count} after step {step}" for count, step in zip(event.counts, looks, strict=True))
    module = f"the module {event.module}" if event.module else "the model itself"
    yield Finding(
        f"{event.function}() at {event.file}:{event.line} is registered as a hook of {module} again and again: "
        f"{event.counts[-1]} of them run in each step by now",
        (
            Evidence(
                f"hooks of this function on {module}: {seen}", "as many at the end as at first", f"rank {event.rank}"
            ),
        ),
        Fix(
            "register it once, before the loop, or remove it when it has done its work",
            diff="+handle = module.register_forward_hook(hook)\n ...\n+handle.remove()",
        ),
        Place(file=event.file, line=event.line, rank=event.rank),
    )
