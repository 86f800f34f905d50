"""FSDP cannot put the parameters of a module into one flat parameter.

## What happens

FullyShardedDataParallel (FSDP1) joins all parameters of a wrapped module in one. They must have one dtype, one device,
and with `use_orig_params=False` one `requires_grad`; and a dtype that has gradients: "Must flatten tensors with uniform
dtype but got torch.bfloat16 and torch.float32", "Must flatten tensors with uniform `requires_grad`", "Cannot flatten
integer dtype tensors". Norms or adapters kept in float32, and quantised weights (int8, packed 4 bits), are the usual
reasons.

## How to be sure

Count the dtypes: `Counter((p.dtype, p.requires_grad, p.device) for p in model.parameters())`.

## How to mend it

Give all parameters one dtype before wrapping, or wrap those that differ as units of their own; LoRA needs
`use_orig_params=True`. Quantised weights must be stored in the dtype of the others (bitsandbytes:
`bnb_4bit_quant_storage=torch.bfloat16`). fully_shard (FSDP2) shards each parameter by itself, but gathers those of one
unit together: the trained ones of a unit must have one dtype too ("FSDP expects uniform original parameter dtype but
got {torch.bfloat16, torch.float32}"), and a unit of their own serves there as well.

The states of an optimizer are flattened as well where one is loaded: "must have positive-dimension tensor state with
the same dtype".

## Versions and sources

Holds for torch 2.2 to 2.13; torch 2.0 says "`FlatParameter` requires uniform dtype". Source: torch.distributed.fsdp,
_flat_param.py, `_validate_tensors_to_flatten`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP548", Severity.ERROR)
STORED = Fix(
    "store quantised weights in the dtype of the others, or leave them out of FSDP",
    diff="+BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)",
)
ONE = Fix(
    "give all parameters one dtype before wrapping; mixed precision is FSDP's own to do",
    diff="+model = model.to(torch.bfloat16)\n model = FSDP(model, mixed_precision=policy)",
)
ORIGINAL = Fix(
    "keep the original parameters, so that frozen and trained ones can stand together",
    diff="-model = FSDP(model)\n+model = FSDP(model, use_orig_params=True)",
)

BY_ACCELERATE = r"accelerator\.prepare\(|accelerate[/\\]accelerator\.py|transformers[/\\]trainer\.py"
OF_ACCELERATE = Fix(
    "let Accelerate's FSDP keep the original parameters, so that frozen and trained ones can stand together",
    command="accelerate launch --use_fsdp --fsdp_use_orig_params=true ... train.py",
    diff='-TrainingArguments(fsdp="full_shard auto_wrap")\n'
    '+TrainingArguments(fsdp="full_shard auto_wrap", fsdp_config={"use_orig_params": True})   # started by torchrun',
)
UNITS = Fix(
    "give all parameters one dtype before sharding, or make those that differ a unit of their own",
    diff="+fully_shard(model.norm)   # float32\n fully_shard(model)",
)
APART = Fix(
    "wrap what is frozen by itself, or use torch's FSDP, which can keep the original parameters",
    diff="-model = FSDP(model)\n+model.backbone = FSDP(model.backbone)   # all frozen\n+model = FSDP(model)",
)


@log_pattern(
    r"(?:Must flatten tensors with uniform|`FlatParameter` requires uniform) (?:dtype but got (?P<one>[\w.]+) and "
    r"(?P<other>[\w.]+)|`?(?P<grad>requires_grad))|(?P<integer>Cannot flatten integer dtype tensors)"
    r"|FSDP expects uniform original parameter dtype but got \{(?P<dtypes>[\w., ]{1,120})\}"
    r"|expects all parameters(?: in the same parameter group of the module)? to have (?P<fairscale>same requires_grad)",
    context=(BY_ACCELERATE,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report which of the conditions does not hold."""
    dtypes = (match["one"], match["other"])
    if match["dtypes"]:
        said, fix = f"those of one unit are of {' and '.join(match['dtypes'].split(', '))}", UNITS
    elif match["integer"] or any("int" in (dtype or "") for dtype in dtypes):
        said, fix = "a module has weights of an integer dtype, which have no gradients", STORED
    elif match["fairscale"]:
        said, fix = "a module has both frozen and trained parameters, which fairscale cannot flatten together", APART
    elif match["grad"]:
        said = "a module has both frozen and trained parameters, and use_orig_params is False"
        fix = OF_ACCELERATE if log.first(BY_ACCELERATE) else ORIGINAL
    else:
        said, fix = f"a module has parameters of {dtypes[0]} and of {dtypes[1]}", ONE
    yield Finding(
        f"FSDP cannot {'gather the parameters together' if match['dtypes'] else 'flatten the parameters'}: {said}",
        (record.proof(match, "one dtype, with gradients, in each wrapped module"),),
        fix,
        record.place,
    )


@log_pattern(r"RuntimeError: [Oo]nly Tensors of floating point(?: and complex)? dtype can require gradients")
def of_integers(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise fully_shard, which makes parameters anew and asks for gradients of each."""
    if "_fully_shard" in record.text or "fully_shard(" in record.text:
        yield Finding(
            "fully_shard makes sharded parameters that ask for gradients, and some weights are of an integer dtype",
            (record.proof(match, "parameters of floating point"),),
            STORED,
            record.place,
        )


@log_pattern(
    r"(?<![\w.])(?P<module>[\w.]{1,160}) has both parameters with requires_grad=True and False\. "
    r"FSDP does not support wrapping such"
)
def found_by_the_policy(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what torch 2.1 and later say where a policy finds the modules."""
    yield Finding(
        f"FSDP cannot flatten the parameters of {match['module']}: it has both frozen and trained ones, and "
        "use_orig_params is False",
        (record.proof(match, "all frozen, or all trained"),),
        ORIGINAL,
        record.place,
    )


@log_pattern(
    r"parameters comprising a single flat parameter must have (?P<what>positive-dimension tensor|scalar) state with "
    r"the same (?:value and )?dtype but got (?:values [^\n]{1,200}? and )?dtypes \{(?P<dtypes>[\w., ]{1,200})\} for "
    r"state (?P<state>\w+)(?: and (?:unflattened parameter names|parameter) (?P<names>[^\n]{1,300}))?"
)
def of_a_state(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the state and the dtypes that an optimizer's checkpoint has for the parameters of one unit."""
    dtypes = " and ".join(each for each in match["dtypes"].split(", ") if each != "None")
    yield Finding(
        f"the optimizer's {match['state']} is of {dtypes} for parameters that FSDP keeps as one",
        (record.proof(match, "states of one dtype for the parameters of one unit"),),
        Fix(
            "bring the loaded states to one dtype before they are flattened, or keep the original parameters",
            diff=f'+for each in osd["state"].values():\n+    each["{match["state"]}"] = '
            f'each["{match["state"]}"].float()\n osd = FSDP.optim_state_dict_to_load(model, optimizer, osd)',
        ),
        record.place,
    )
