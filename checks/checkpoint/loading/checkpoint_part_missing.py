"""A checkpoint has not the part that the script asks it for.

## What happens

The file is read, and `checkpoint["optimizer"]` raises `KeyError: 'optimizer'`: what was saved is the weights alone, a
whole state under other names, or two parts were exchanged when they were saved (the scheduler's state under
"optimizer": then `optimizer.load_state_dict` raises `KeyError: 'param_groups'`).

`accelerator.load_state` of some versions raises `KeyError: 'step'` at `self.step = override_attributes["step"]`: the
step lies in `random_states_RANK.pkl`, a failure to read that is passed over ("Could not load random states"), and then
the step is missing.

## How to be sure

`ddpdoctor inspect last.pt` lists what the file has at its top, without running anything of it.

## How to mend it

Ask for the name that the file has. Where the part was never saved, begin it anew, on all ranks alike; and save it from
now on: `torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)`.

## Versions and sources

Holds for all versions of torch. Source: torch/optim/optimizer.py, `load_state_dict`, which reads "param_groups" and
"state"; torch/optim/adamw.py, `__setstate__`, which reads "step".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP839", Severity.ERROR)
PART = re.compile(
    r"\b(?P<file>(?:\w*(?:ckpt|chkpt|checkpoint|snapshot)\w*|(?:\w+_)?state(?:_dict)?|saved|weights)(?:\.\w+)?)"
    r"\[['\"](?P<key>[^'\"\]]+)['\"]\]"
)
RANDOM = r"Could not load random states"
INSPECT = "ddpdoctor inspect last.pt   # what the file has at its top"


@log_pattern(r"(?:^|\n)[ |]*KeyError: '(?P<key>[^'\n]{1,120})'[ |]*(?:\n|$)", plain=True, context=(RANDOM,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read the key, and the line that asks for it."""
    key = match["key"]
    if key in {"param_groups", "state", "step"} and re.search(r"torch[/\\]optim[/\\]\w+\.py", record.text):
        yield _of_an_optimizer(record, match)
        return
    if key == "step" and 'override_attributes["step"]' in record.text:
        yield _of_accelerate(record, match, log)
        return
    asked = next((each for each in PART.finditer(record.code) if each["key"] == key), None)
    if asked is not None:
        yield Finding(
            f"the checkpoint has no {key!r}: {record.code} asks for it",
            (record.proof(match, f"{key!r} at the top of the file"),),
            Fix(
                "ask for the name that it has in the file; where it was never saved, begin without, on all ranks",
                command=INSPECT,
                diff=f"-{record.code}\n+if {key!r} in {asked['file']}:   # the same on all ranks\n+    {record.code}",
            ),
            record.place,
        )


def _of_accelerate(record: Record, match: re.Match[str], log: Log) -> Finding:
    """accelerator.load_state reads the step beside the random states, passes over a failure there, and misses it."""
    passed = log.before(record, RANDOM)
    return Finding(
        "Accelerate found no step in the checkpoint: it is kept with the random states of the rank, "
        + ("which could not be loaded" if passed else "in random_states_RANK.pkl"),
        (
            record.proof(match, "random_states_RANK.pkl, with a step in it"),
            *((passed[0].proof(passed[1]),) if passed else ()),
        ),
        Fix(
            "let a newer Accelerate load it, which goes on without a step; or resume with the version that saved it",
            command="pip install --upgrade accelerate",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "another version of Accelerate saved it, which kept no step there",
                "this rank has no file of random states: it was saved by fewer ranks, or on another host",
                "the file is there and cannot be read: torch.load refuses it (weights_only), or it was cut off",
            ),
            'ls -l CHECKPOINT/random_states_*.pkl; python -c "import torch; '
            "print(torch.load('CHECKPOINT/random_states_0.pkl', weights_only=False).keys())\"",
        ),
    )


def _of_an_optimizer(record: Record, match: re.Match[str]) -> Finding:
    key = match["key"]
    causes = (
        "another part was saved under this name: the scheduler, or the scaler",
        "the file is of a framework, or a wrapper, that keeps the optimizer's state in a form of its own",
    )
    if key == "step":
        causes = (
            "the state of each parameter has no step: it was saved by another optimizer, or by another torch",
            "a part of the states was put together by hand, or resharded, and lacks it",
        )
    return Finding(
        f"what is loaded as the optimizer's state has no {key!r}: it is not what this optimizer saves",
        (record.proof(match, "optimizer.state_dict(), as this optimizer returns it"),),
        Fix("load what optimizer.state_dict() returned", command=INSPECT),
        record.place,
        ambiguity=Ambiguity(causes, INSPECT),
    )


@log_pattern(r"Required (?P<part>universal_checkpoint_info) state is missing in checkpoint")
def of_a_universal_one(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """ds_to_universal.py reads what Megatron-DeepSpeed's own trainings save beside the weights."""
    yield Finding(
        f"the checkpoint has no {match['part']}, of which a universal one is made: its training did not save it",
        (record.proof(match, "what Megatron-DeepSpeed saves beside the weights"),),
        Fix(
            "let the conversion put it in (newer DeepSpeed), or take the weights alone",
            command="python -m deepspeed.checkpoint.ds_to_universal --inject_missing_state --input_folder ... "
            "--output_folder ...\npython zero_to_fp32.py CHECKPOINT_FOLDER weights   # it stands in that folder",
        ),
        record.place,
    )
