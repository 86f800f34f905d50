"""How the last micro-batch before a step is left out of no_sync, in the words of the framework that has it."""

from __future__ import annotations

from ddpdoctor.check import ACCELERATE, FABRIC, Fix, Framework

PLAIN = Fix(
    "leave no_sync for the last micro-batch before each step",
    diff=" for index, (inputs, targets) in enumerate(loader):\n"
    "+    last = (index + 1) % accumulate == 0\n"
    "+    with contextlib.nullcontext() if last else model.no_sync():\n"
    "         (criterion(model(inputs), targets) / accumulate).backward()\n"
    "+    if last:\n"
    "         optimizer.step()\n"
    "         optimizer.zero_grad()",
)
LAST = Fix(
    "leave no_sync for the last micro-batch of all as well, where a last window has fewer",
    diff=" for index, (inputs, targets) in enumerate(loader):\n"
    "-    last = (index + 1) % accumulate == 0\n"
    "+    last = (index + 1) % accumulate == 0 or index + 1 == len(loader)\n"
    "     with contextlib.nullcontext() if last else model.no_sync():",
)
OF_FABRIC = Fix(
    "leave no_backward_sync for the last micro-batch before each step",
    diff=" for index, (inputs, targets) in enumerate(loader):\n"
    "+    last = (index + 1) % accumulate == 0\n"
    "+    with fabric.no_backward_sync(model, enabled=not last):\n"
    "         fabric.backward(criterion(model(inputs), targets) / accumulate)\n"
    "+    if last:\n"
    "         optimizer.step()\n"
    "         optimizer.zero_grad()",
)
OF_ACCELERATE = Fix(
    "leave no_sync for the last micro-batch before each step, or have Accelerate count them",
    diff="-accelerator = Accelerator()\n+accelerator = Accelerator(gradient_accumulation_steps=accumulate)\n"
    " for inputs, targets in loader:\n"
    "-    with accelerator.no_sync(model):\n"
    "+    with accelerator.accumulate(model):   # divides the loss, and steps when it is time\n"
    "         accelerator.backward(criterion(model(inputs), targets))\n"
    "         optimizer.step()\n"
    "         optimizer.zero_grad()",
)


def mend(framework: Framework | None, plain: Fix) -> Fix:
    """Return the framework's own way, where it has one, in place of torch's."""
    if framework is FABRIC:
        return OF_FABRIC
    return OF_ACCELERATE if framework is ACCELERATE and plain is PLAIN else plain
