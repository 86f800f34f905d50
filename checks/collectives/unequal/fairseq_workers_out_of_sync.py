"""fairseq's workers are at different places.

## What happens

fairseq's `all_gather_list` sends Python objects of all workers through one buffer. A worker that is elsewhere, because
it ran out of memory and skipped a batch, or has no batch left, takes part with another tensor: what comes out cannot be
unpickled ("Unable to unpickle data from other workers"). Where the norms of gradients differ, fairseq says so itself:
"Fatal error: gradients are inconsistent between workers", with the norm of each rank. Norms that are NaN or
infinite count as different: where all are, the workers agree, and the gradients have become so on all.

## How to be sure

Search the logs of all workers for "ran out of memory" and "recovering from OOM" shortly before, and compare the numbers
of batches. Norms that differ from the first update on come from ranks that began with other weights or from parts of
the model that DDP does not reduce.

## How to mend it

Lower --max-tokens where a worker ran out of memory. `--ddp-backend=legacy_ddp` reduces after the whole backward, which
models that use a parameter more than once, or leave some out, want. NaN is a matter of the learning rate, a batch or
fp16.

## Versions and sources

Holds for fairseq 0.9 to 0.12, whatever the torch. Source: fairseq/distributed/utils.py, `all_gather_list`;
fairseq/trainer.py, `_check_grad_norms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP721", Severity.ERROR)
NORM = r"\brank +\d+ = (\S+)"


@log_pattern(
    r"(?P<list>Unable to unpickle data from other workers\. all_gather_list requires all workers)"
    r"|(?P<inner>in all_gather_list\n(?:[^\n]*\n){1,6}?(?:_?pickle\.UnpicklingError|EOFError|KeyError): [^\n]*)"
    r"|Fatal error: gradients are inconsistent between workers",
    context=(NORM,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Say which of the two it is, and what remains."""
    if not match["list"] and not match["inner"] and _none_is_finite(log):
        yield _not_finite(record, match)
        return
    yield Finding(
        "a worker of fairseq was elsewhere when the others called all_gather_list"
        if match["list"] or match["inner"]
        else "the gradients of fairseq's workers differ after they were averaged",
        (record.proof(match, "all workers at one place, with the same gradients"),),
        Fix(
            "mend what takes one worker out of step; where it is the model, reduce after the whole backward",
            command="fairseq-train ... --ddp-backend=legacy_ddp",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a worker ran out of memory and skipped its batch",
                "a worker had no batch left",
                "the model uses a parameter several times, or leaves some out, under DDP",
            ),
            "grep -inE 'out of memory|recover from OOM|grad_norm|rank +[0-9]+ =' LOGS_OF_ALL_WORKERS",
        ),
    )


def _none_is_finite(log: Log) -> bool:
    norms = [norm for record, _ in log.find(NORM) for norm in re.findall(NORM, record.text)]
    return bool(norms) and all(re.fullmatch(r"-?(?:nan|inf)", norm) for norm in norms)


def _not_finite(record: Record, match: re.Match[str]) -> Finding:
    return Finding(
        "the gradients of all of fairseq's workers have become NaN or infinite, which fairseq takes for a difference",
        (record.proof(match, "finite norms of the gradients"),),
        Fix(
            "find the first loss that is not finite; let the learning rate rise more slowly, and leave fp16",
            command="grep -inE 'loss=(nan|inf)|overflow' LOGS_OF_ALL_WORKERS | head\n"
            "fairseq-train ... --lr 1e-4 --warmup-updates 4000 --clip-norm 1.0 --bf16   # or without --fp16",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the learning rate is too high, or rises too fast",
                "a batch makes the loss NaN: an empty sample, log(0), a division by zero",
                "the values exceed fp16, where --fp16 or --amp is on",
            ),
            "CUDA_VISIBLE_DEVICES=0 fairseq-train ... --log-interval 1   # one worker, with and without --fp16",
        ),
    )
