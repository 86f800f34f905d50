"""A mixture of experts under ZeRO-3: the ranks gather the parameters of those experts that their own tokens go to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Fix

if TYPE_CHECKING:
    from ddpdoctor.check import Evidence, Log

MOE = (
    r"(?:MoeFor|MoEFor|MixtralFor|DeepseekV2For|DeepseekV3For|JambaFor|DbrxFor)(?:CausalLM|ConditionalGeneration)"
    r"|\bnum_experts\b|\bnum_local_experts\b|\b\d+ experts\b"
)
ZERO3 = r"zero_config[ .]+stage=3|zero_stage['\": =]+3\b|\bZeRO(?: stage |-)3\b|['\"]stage['\"]: ?3\b"
EXPERTS = (
    "a mixture of experts under ZeRO-3: the tokens of the ranks go to different experts, so they gather different "
    "parameters; DeepSpeed has to be told to gather all experts of a block together"
)
LEAVES = Fix(
    "let ZeRO-3 gather a block of experts as a whole, before deepspeed.initialize; else take branches that differ "
    "between ranks out of the model",
    diff="+from deepspeed.utils import set_z3_leaf_modules\n"
    "+set_z3_leaf_modules(model, [Qwen3MoeSparseMoeBlock])   # the class of the block that holds the experts",
)


def under_zero3(log: Log) -> tuple[Evidence, ...]:
    """Quote what shows a mixture of experts and ZeRO-3, where the log shows both."""
    moe, zero = log.first(MOE), log.first(ZERO3)
    return (moe[0].proof(moe[1]), zero[0].proof(zero[1])) if moe and zero else ()
