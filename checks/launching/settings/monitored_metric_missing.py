"""A callback watches a metric that nobody reports under that name.

## What happens

The best checkpoint, early stopping or a schedule follows a metric by its name, and the training logs it under another
one, or later, or only on some epochs. Lightning raises MisconfigurationException, the transformers Trainer KeyError, at
the end of the first epoch: what was trained until then is lost.

## How to be sure

The message lists the names that are there. A name that is among them with another prefix (`val_loss` and `val/loss`,
`loss` and `eval_loss`) is the one that was meant.

## How to mend it

Watch a name of the list, or log it: `self.log("val_loss", loss, sync_dist=True)`, on all ranks, in the validation.

## Versions and sources

The words are those of Lightning and transformers in reports; not run here. Sources:
lightning/pytorch/callbacks/model_checkpoint.py, `_save_topk_checkpoint`; transformers/trainer.py,
`_determine_best_metric`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP445", Severity.ERROR)


@log_pattern(
    r"(?P<who>ModelCheckpoint|EarlyStopping|ReduceLROnPlateau)\(?[^\n]{0,40}monitor(?:=|ed metric "
    r")[`'\"](?P<name>[^'\"`\n]{1,120})['\"`]"
    r"[^\n]{0,80}?(?:metrics|available)[^\n\[]{0,80}(?P<there>\[[^\]\n]{0,2000}\])?"
    r"|Early stopping conditioned on metric `(?P<early>[^`\n]{1,120})` which is not "
    r"available[^\n`]{0,120}`(?P<have>[^`\n]{0,2000})`"
    r"|`metric_for_best_model` training argument is set to '(?P<best>[^'\n]{1,120})', which is not found in the "
    r"evaluation "
    r"metrics[^\n\[]{0,80}(?P<known>\[[^\]\n]{0,2000}\])?",
    plain=True,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the name with those that are there."""
    name = match["name"] or match["early"] or match["best"]
    there = re.findall(r"[\w./@ -]+", (match["there"] or match["known"] or match["have"] or "").replace("'", ","))
    known = [each.strip() for each in there if each.strip(" ,")]
    alike = difflib.get_close_matches(name, known, 1, 0.6)
    yield Finding(
        f"{name} is watched, and nothing is logged under that name" + (f": {alike[0]} is" if alike else ""),
        (record.proof(match, f"a metric {name}"),),
        Fix(
            f"watch {alike[0]}" if alike else "log it on all ranks, or watch what is logged",
            diff=f"-monitor={name!r}\n+monitor={alike[0]!r}"
            if alike
            else f"+self.log({name!r}, value, sync_dist=True)   # in validation_step",
        ),
        record.place,
    )
