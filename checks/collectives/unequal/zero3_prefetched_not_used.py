"""ZeRO-3 gathered parameters of a module that this forward then left out.

## What happens

ZeRO-3 keeps a part of each parameter on each rank and gathers it before its module runs. It remembers the order of the
modules from the forward before, and gathers ahead. A forward that takes another way, because the batch decides which
modules run, leaves parameters gathered or on their way: "still have inflight params", "{'id': 786, 'status':
'INFLIGHT' ...} AssertionError", or modules that were not recorded: "IndexError: pop from an empty deque". Where ranks
take different ways in one step, they wait for each other for ever. `generate()` between two steps, with the hooks of
ZeRO-3 taken off for it, leaves the record as wrong.

## How to be sure

Look in forward for a condition on the batch (no image in it, `use_fc2`) or on random numbers (layer drop). The message
has the shapes of the parameters that were not used: find their module.

## How to mend it

Run the same modules in every forward, on all ranks: what is not wanted with an input of zeros, its output times zero.
Modules of which the batch picks some (experts) are made one unit: `deepspeed.utils.set_z3_leaf_modules(model,
[Experts])`. Without gathering ahead ("stage3_prefetch_bucket_size": 0) one rank alone passes, more slowly.

## Versions and sources

Holds for torch 2.2 and later: the words are DeepSpeed's, as reports of 2022 and later have them; not run here. Source:
deepspeed/runtime/zero/partitioned_param_coordinator.py, `reset_step`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP768", Severity.ERROR)


@log_pattern(
    r"still have inflight params(?P<said>[^\n]{0,400})|AssertionError: \{'id': \d+, 'status': '(?:INFLIGHT"
    r"|<ZeroParamStatus\.INFLIGHT)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the shapes of what was gathered and not used."""
    shapes = re.findall(r"'ds_shape': (\([\d, ]+\))", record.text)
    yield Finding(
        "this forward left out a module whose parameters ZeRO-3 had gathered ahead, as the forward before used it"
        + (f": shapes {', '.join(shapes[:3])}" if shapes else ""),
        (record.proof(match, "the same modules in every forward"),),
        Fix(
            "run the same modules in every forward, on all ranks, or make those that the batch picks one unit",
            diff=" if image is None:\n-    return hidden\n+    return hidden + 0.0 * "
            "self.vision(torch.zeros_like(example)).sum()",
            command='python -c "from deepspeed.utils import set_z3_leaf_modules"   # set_z3_leaf_modules(model, '
            "[Experts])",
        ),
        record.place,
    )


@log_pattern(
    r"__step_id_module_fetched_for\[[^\n]{1,60}\]\.popleft\(\)[^\0]{0,400}?IndexError: pop from an empty deque"
)
def of_modules_not_recorded(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A module runs that the record of the forward before does not have."""
    yield Finding(
        "the modules ran in another order, or more often, than ZeRO-3 has recorded of the forward before",
        (record.proof(match, "the same modules in every forward"),),
        Fix(
            "run the same modules in every forward; generate within the engine's hooks, on all ranks, or not between "
            "the steps",
            diff="-with unwrap_model_for_generation(model, accelerator) as bare:\n"
            "+with unwrap_model_for_generation(model, accelerator, gather_deepspeed3_params=False) as bare:   # of trl",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "generate(), or an evaluation, between the steps took the hooks of ZeRO-3 off, and the record stayed",
                "the forward takes another way with this batch (a branch, experts, layer drop)",
                "a module is called past the engine",
            ),
            "grep -rnE 'generate\\(|unwrap_model|set_z3_leaf_modules' --include=*.py .   # what runs between the steps",
        ),
    )
