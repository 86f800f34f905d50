"""Words that several checks of models share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpdoctor.check import LIGHTNING, Died, Evidence, Fix, Outcome, Raised, Stuck

if TYPE_CHECKING:
    from ddpdoctor.check import Training

SHOWN = 8
GATHER = """\
+class Gather(torch.autograd.Function):
+    @staticmethod
+    def forward(ctx, own):
+        parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
+        dist.all_gather(parts, own.contiguous())
+        return torch.cat(parts)
+
+    @staticmethod
+    def backward(ctx, gradient):
+        total = gradient.clone(memory_format=torch.contiguous_format)
+        dist.all_reduce(total)
+        return total.chunk(dist.get_world_size())[dist.get_rank()]
+
"""
"""A gather with gradients, in any torch: from 2.13 on torch warns that its own in distributed.nn is deprecated."""
PLAIN = "+model = DDP(model)"


def listed(names: Sequence[object], shown: int = SHOWN) -> str:
    """Return the names, at most so many of them, and how many more there are."""
    rest = len(names) - shown
    return ", ".join(str(name) for name in names[:shown]) + (f" and {rest} more" if rest > 0 else "")


def counted(number: int, noun: str) -> str:
    """Return ``1 parameter`` or ``3 parameters``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def before_wrapping(training: Training, line: str) -> str:
    """Return how a line comes to stand before the model is wrapped, as a diff, in the words of the framework."""
    framework = training.framework
    wraps = framework.model if framework is not None and framework.model else PLAIN
    return "\n".join([*(f"-{each[1:]}" for each in wraps.splitlines()), f" {line}", wraps])


def frozen_later(training: Training) -> Fix | None:
    """Return how Lightning is told to train later what is frozen at first; None where another wraps the model."""
    if training.framework is not LIGHTNING:
        return None
    return Fix(
        "freeze when DDP has wrapped the model: what was frozen before is never averaged",
        diff=" def __init__(self):\n-    self.backbone.requires_grad_(False)\n+def on_train_start(self):\n"
        '+    self.backbone.requires_grad_(False)\n+trainer = Trainer(strategy="ddp_find_unused_parameters_true", ...)',
    )


def made_later(training: Training) -> Fix | None:
    """Return where a LightningModule gets what is made late; None where another wraps the model."""
    if training.framework is not LIGHTNING:
        return None
    return Fix(
        "make it in configure_model(), which Lightning calls before it wraps the model and has the optimizers made",
        diff=" def __init__(self):\n     self.head = None\n"
        "-def on_train_start(self):\n-    self.head = nn.Linear(512, classes)\n"
        "+def configure_model(self):\n+    if self.head is None:\n+        self.head = nn.Linear(512, classes)",
    )


def ends(outcomes: tuple[Outcome, ...], expected: str) -> tuple[Evidence, ...]:
    """Return how the ranks ended that did not return, those first that failed by themselves."""
    order = sorted(outcomes, key=lambda outcome: isinstance(outcome, Stuck))
    return tuple(Evidence(end(outcome), expected, f"rank {outcome.rank}") for outcome in order if end(outcome))


def end(outcome: Outcome) -> str:
    """Return how a rank ended; empty when it returned."""
    match outcome:
        case Raised(kind=kind, message=message):
            return f"{kind}: {first_sentences(message)}"
        case Died(signal=None, exitcode=code):
            return f"ended with exit status {code}"
        case Died(signal=number):
            return f"died by signal {number}"
        case Stuck(stack=stack):
            return (
                f"still waiting in {stack[0].function} ({stack[0].file}:{stack[0].line})" if stack else "still waiting"
            )
        case _:
            return ""


def first_sentences(message: str, length: int = 240) -> str:
    """Shorten an error of torch, whose advice is long."""
    text = " ".join(message.split())
    return text if len(text) <= length else f"{text[:length].rpartition(' ')[0]} ..."
