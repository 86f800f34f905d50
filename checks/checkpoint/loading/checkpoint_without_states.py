"""A folder that is to be resumed from holds no weights of the kind that the framework looks for.

## What happens

Each way to train saves files of its own: the Trainer `model.safetensors` or `pytorch_model.bin`, DeepSpeed a folder
`global_stepN` with `mp_rank_00_model_states.pt` and a file `latest` that names it, FSDP a folder
`pytorch_model_fsdp_0`, PEFT `adapter_model.safetensors` alone. A training that is resumed another way than it was saved
finds none: "Can't find a valid checkpoint at", or DeepSpeed's bare `assert len(self.ckpt_list) > 0`. The same where the
saving was broken off, or where the path is that of the run and not of one checkpoint in it.

## How to be sure

`ls` in the folder: which of these files are there.

## How to mend it

Resume with what has saved it (the same `--deepspeed` or FSDP settings), from a checkpoint that is whole; to go on
another way, gather the weights first (`python zero_to_fp32.py . pytorch_model.bin` in a checkpoint of DeepSpeed) and
start from these, without the state of the optimizer.

## Versions and sources

Holds for transformers 4.20 and later and DeepSpeed 0.8 and later, with torch 2.2 and later: read in their sources and
in reports; not run here. Sources: transformers/trainer.py, `_load_from_checkpoint`;
transformers/integrations/deepspeed.py, `deepspeed_load_checkpoint`; deepspeed/runtime/state_dict_factory.py,
`check_ckpt_list`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP830", Severity.ERROR)
OF_DEEPSPEED = "a file latest, and the folder that it names with mp_rank_00_model_states.pt"
SHARDS = r"\bSHARDED_STATE_DICT\b|pytorch_model_fsdp_0"
OF_TRAINER = "model.safetensors, pytorch_model.bin or an adapter's weights"


@log_pattern(
    r"ValueError: Can't find a valid checkpoint at (?P<folder>[^\n]{1,300})"
    r"|assert len\(self\.ckpt_list\) > 0\n(?:[ ~^]*\n)?AssertionError",
    context=(SHARDS,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Say which files were looked for, by whose code raised it."""
    folder = match["folder"] or ""
    is_deepspeed = not folder or "deepspeed" in record.text
    by = "DeepSpeed" if is_deepspeed else "the Trainer"
    listed, run = folder or "CHECKPOINT", folder.rpartition("/")[0] or "OUTPUT"
    fsdp = log.first(SHARDS)
    if fsdp and not is_deepspeed:
        yield _of_shards(record, match, fsdp[0].proof(fsdp[1]), listed)
        return
    yield Finding(
        f"{folder or 'the checkpoint'} holds no weights that {by} resumes from",
        (record.proof(match, OF_DEEPSPEED if is_deepspeed else OF_TRAINER),),
        Fix(
            "resume with the settings that the checkpoint was saved with, from one that is whole",
            command=f"ls -R {listed} | head -40\nls -d {run}/checkpoint-*",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "it was saved another way: without DeepSpeed, by FSDP, or as an adapter alone",
                "its saving was broken off: files are missing",
                "the path is that of the run, and the checkpoints are folders in it",
            ),
            f"ls -R {listed} | head -40",
        ),
    )


@log_pattern(
    r"Unable to load (?:optimizer|random state|rng state)s? from checkpoint (?P<path>\S{1,300}?),? (?:exiting\. )?"
    r"\.?[ ]?Specify (?P<options>--[\w-]+ or --[\w-]+)"
)
def of_megatron(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Megatron and what was made of it (SAT, GLM) ask for the states that a resumed run wants."""
    wanted = "states of the random numbers" if "rng" in match["options"] else "states of the optimizer"
    yield Finding(
        f"the checkpoint has no {wanted} that this run can go on with",
        (record.proof(match, f"{wanted}, which a run that saves all of itself writes"),),
        Fix(
            "leave them out, where the weights are all that is wanted; else resume from a checkpoint that has them",
            command=f"... {match['options'].split(' or ')[0]}   # goes on without; --finetune begins at iteration 0",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "it was saved without them (--no-save-optim, --no-save-rng), or is a released model",
                "it was saved by another version or program, which keeps them under another name",
                "it was saved with another number of ranks, and this rank's file is not there",
            ),
            f"python -c \"import torch; print(torch.load('{match['path'].rstrip('.')}', map_location='cpu', "
            'weights_only=False).keys())"',
        ),
    )


def _of_shards(record: Record, match: re.Match[str], shown: Evidence, listed: str) -> Finding:
    """FSDP wrote the shards of its ranks, and this Trainer looks for whole weights alone."""
    return Finding(
        f"{match['folder']} was saved as FSDP's shards, and this Trainer resumes from whole weights alone",
        (record.proof(match, OF_TRAINER), shown),
        Fix(
            "upgrade: newer Trainers resume from pytorch_model_fsdp_0; or save whole weights from now on",
            command=f"ls -d {listed}/pytorch_model_fsdp_0 && pip install --upgrade transformers accelerate",
            diff="-fsdp_state_dict_type: SHARDED_STATE_DICT\n+fsdp_state_dict_type: FULL_STATE_DICT",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the folder pytorch_model_fsdp_0 is there, and this version does not look for it",
                "the saving was broken off: that folder is absent",
            ),
            f"ls -R {listed} | head -40",
        ),
    )
