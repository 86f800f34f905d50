"""DeepSpeed is given no optimizer, and its engine is to train, or to share the optimizer out.

## What happens

ZeRO 1 shares the state of the optimizer among the ranks, ZeRO 2 its gradients too. Without an optimizer there is
nothing to share, and `deepspeed.initialize` refuses: "zero stage 2 requires an optimizer". Usually the engine is meant
for evaluation or as a frozen reference model (the teacher, the reference of DPO and PPO), and was given the
configuration of the training. Or an optimizer was meant: neither `optimizer=` nor a section `optimizer` of the
configuration says which.

Under stage 3 such an engine is made, for evaluation. Its `backward` and `step` then fail: "'DeepSpeedZeRoOffload'
object has no attribute 'backward'", or "must provide optimizer during init in order to use backward".

## How to be sure

Look at the call of `deepspeed.initialize`, or of `accelerator.prepare`, in the traceback: whether an optimizer is
among its arguments, and whether this model is to be trained.

## How to mend it

A model that is not trained takes stage 3, which shares the weights, or stage 0. One that is trained gets its optimizer:
`deepspeed.initialize(model=model, optimizer=optimizer, config=config)`, or a section `optimizer`.

## Versions and sources

Holds for DeepSpeed 0.5 to 0.19 with torch 2.2 to 2.13. Sources: deepspeed/runtime/engine.py,
`_configure_zero_optimizer`, `backward` and `step`; hiyouga/LlamaFactory#971, OpenMOSS/MOSS#273.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1582", Severity.ERROR)


@log_pattern(r"zero stage (?P<stage>[12]) requires an optimizer")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Leave open whether the model is meant to be trained."""
    yield Finding(
        f"an engine with ZeRO stage {match['stage']} has no optimizer, whose state that stage shares out",
        (record.proof(match, "an optimizer, or stage 0 or 3 for a model that is not trained"),),
        Fix(
            "give a model that is only evaluated a configuration of its own, and one that is trained its optimizer",
            diff="+frozen = {**config, 'zero_optimization': {'stage': 3}}   # 0 where it fits on each GPU\n"
            "-engine, *_ = deepspeed.initialize(model=reference, config=config)\n"
            "+engine, *_ = deepspeed.initialize(model=reference, config=frozen)",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "this model is not trained (a reference, a teacher), and has the configuration of the training",
                "it is trained, and neither optimizer= nor a section `optimizer` of the configuration was given",
            ),
            "grep -rn 'deepspeed.initialize\\|\"optimizer\"' --include=*.py --include=*.json .",
        ),
    )


@log_pattern(
    r"'DeepSpeedZeRoOffload' object has no attribute '(?P<missing>\w+)'"
    r"|must provide optimizer during init in order to use (?P<use>\w+)"
)
def in_training(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """An engine of stage 3 is made without an optimizer, and does not train."""
    yield Finding(
        f"the engine was made without an optimizer, and its {match['missing'] or match['use']} is called: it only "
        "evaluates",
        (record.proof(match, "an optimizer, given to deepspeed.initialize or to accelerator.prepare"),),
        Fix(
            "give the engine its optimizer, in the call or in the configuration",
            diff="-engine, *_ = deepspeed.initialize(model=model, config=config)\n"
            "+engine, *_ = deepspeed.initialize(\n"
            "+    model=model, model_parameters=model.parameters(),\n"
            "+    config={**config, 'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-5}}},\n+)",
        ),
        record.place,
    )
