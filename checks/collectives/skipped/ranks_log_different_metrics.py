"""The ranks synchronise different metrics.

## What happens

`self.log(..., sync_dist=True)` and torchmetrics call a collective for each key, in the order of the keys. A key that
only some ranks log (a class that a shard does not contain, a metric under `if`) pairs the collectives of different
metrics: wrong numbers, a hang, or, with TORCH_DISTRIBUTED_DEBUG=DETAIL, "Detected mismatch between collectives on
ranks" with logging's functions in the traceback.

## How to be sure

Print the keys of the logged dictionary on each rank, in their order. They differ between the ranks. `ddpdoctor run`
keeps the keys that each rank has logged with `sync_dist=True`, and the lines: in a hang, one rank has a key that
another one never had, and its line stands under a condition, or makes the names of what is in the batch. What Lightning
reduces at the end of an epoch hangs there, far from that line; or a callback of the other rank says that it could not
find the monitored key. `ddpdoctor stuck` reads the scripts: where both ranks are within `Trainer.fit`, it names the one
value logged behind a test.

## How to mend it

Log the same keys in the same order on all ranks, with a neutral value (0, or NaN that you filter) where there is
none; or log without synchronising and gather once at the end of the epoch. What rank 0 alone is to log is not reduced:
`self.log(name, value, rank_zero_only=True)`.

## Versions and sources

Holds for torch 2.2 to 2.13 with Lightning 2 and torchmetrics 1. Source: Lightning documentation, "Logging",
sync_dist; torchmetrics documentation, "Metrics in distributed data parallel mode".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Log,
    PeerLost,
    Record,
    Severity,
    Stalled,
    Table,
    Training,
    log_pattern,
    place,
)

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._losses import Loss, on_loss
from ..hangs._told import noticed, seen, short, table
from ..hangs.handed._logged import Logged, logged_under_a_test
from ..hangs.reasons._synced import Synced, lacked_by_first, synced_by_some
from ..hangs.source._rewritten import shown
from ..unequal._mismatch import METRICS, Mismatch, on_mismatch

AILMENT = Ailment("DDP714", Severity.ERROR)
KEYS = r"(?m)^[ |]{0,200}rank (?P<rank>\d+) len\(log_vars\): \d+ keys: (?P<keys>[\w.,/ -]{1,2000})"


@on_mismatch(Mismatch.METRICS)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The traceback goes through the synchronisation of metrics."""
    if frames := METRICS.search(record.text):
        yield Finding(
            "the ranks synchronise different metrics: their keys, or the order of these, differ",
            (record.proof(match, "the same keys on all ranks"), record.proof(frames)),
            Fix(
                "log the same keys on every rank, with a neutral value where there is none",
                diff="-for name in seen:\n-    self.log(name, value[name], sync_dist=True)\n"
                "+for name in all_names:\n+    self.log(name, value.get(name, 0.0), sync_dist=True)",
            ),
            record.place,
        )


@log_pattern(r"AssertionError: loss log variables are different across GPUs!", context=(KEYS,))
def of_openmmlab(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Compare the losses of the ranks, which each prints with the refusal, as far as the log has two of them."""
    keys = {int(found["rank"]): found["keys"].split(",") for _, found in log.find(KEYS)}
    every = list(dict.fromkeys(name.strip() for names in keys.values() for name in names))
    lacks = [
        (name, rank) for name in every for rank, names in sorted(keys.items()) if name not in map(str.strip, names)
    ]
    said = f": {lacks[0][0]} is not there on rank {lacks[0][1]}" if lacks else ""
    yield Finding(
        f"the ranks have different losses in one step{said}",
        (record.proof(match, "the same losses on all ranks, whatever is in the batch"),),
        Fix(
            "return every loss for every batch, also for one without a sample of that kind: 0, made of the prediction",
            diff="-if len(targets):\n-    losses['loss_bbox'] = self.loss_bbox(prediction, targets)\n"
            "+losses['loss_bbox'] = self.loss_bbox(prediction, targets) if len(targets) else prediction.sum() * 0",
        ),
        record.place,
    )


@on_hang(Hang.METRICS)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Report the key that a rank lacks."""
    if found := synced_by_some(event.ranks, training):
        yield _finding(found, seen(event), table(event))
    elif only := logged_under_a_test(event):
        yield _by_source(only, event)


@on_loss(Loss.METRICS)
def by_those_who_lost_it(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Report it where the reduction has ended one of the ranks."""
    said = noticed(event)
    if event.first is not None and (found := lacked_by_first(event, training)):
        yield _finding(found, (Evidence(event.first.said, "", f"rank {event.first.rank}"), *said), None)
    elif found := synced_by_some(event.progress, training):
        yield _finding(found, said, None)


def _by_source(found: Logged, event: Stalled) -> Finding:
    """Return the one line whose test ranks can answer differently: what each of them has logged is not known."""
    one, other, test = found.one, found.other, " ".join(ast.unparse(found.guard.test).split())
    return Finding(
        f"rank {one.rank} waits in {one.operation}, rank {other.rank} in {other.operation}, both within "
        f"{short(one.site)}; of what is logged with sync_dist=True, {found.name} at {short(found.site)} alone is "
        f"decided by a test, {found.guard.words}: a rank that does not log it leaves its reduction out",
        (Evidence(found.guard.words, "the same keys on all ranks", str(found.site)), *seen(event)),
        Fix(
            "log it on all ranks, with a neutral value where there is none; or without sync_dist",
            diff=f"-if {test}:\n-    self.log({found.name}, value, sync_dist=True)\n"
            f"+self.log({found.name}, value if {test} else 0.0, sync_dist=True)   # called by all ranks",
        )
        if found.guard.holds
        else Fix("log it before the test, on all ranks, with a neutral value where there is none"),
        place(found.site, rank=one.rank),
    )


def _of_a_batch(found: Synced, proof: tuple[Evidence, ...], positions: Table | None) -> Finding:
    """Return what is logged under names that each rank's own batches decide."""
    name, site = found.logged.name, found.logged.site
    return Finding(
        f"the names of what is logged with sync_dist=True at {short(site)} are made of what is in a batch: rank "
        f"{found.rank} logs {name!r}, which Lightning reduces over all ranks, and rank {found.other} has none of it",
        (
            Evidence(f"{name!r} was logged", "the same keys on all ranks", f"rank {found.rank}, {site}"),
            Evidence(f"{name!r} was never logged, others were", "", f"rank {found.other}, {site}"),
            *proof,
        ),
        Fix(
            "log the same keys on all ranks: a metric of torchmetrics for each name, updated with what is there",
            diff="+self.losses = nn.ModuleDict({name: torchmetrics.MeanMetric() for name in NAMES})   # in __init__\n"
            "-self.log_dict(values, sync_dist=True)\n"
            "+for name, value in values.items():\n+    self.losses[name].update(value)\n"
            "+for name, metric in self.losses.items():   # in on_validation_epoch_end\n"
            "+    self.log(name, metric.compute())\n+    metric.reset()",
        ),
        place(site, rank=found.rank),
        table=positions,
    )


def _finding(found: Synced, proof: tuple[Evidence, ...], positions: Table | None) -> Finding:
    if not found.guard:
        return _of_a_batch(found, proof, positions)
    name, site, test = found.logged.name, found.logged.site, shown(found.guard)
    once = f"+self.log({name!r}, value, rank_zero_only=True)   # rank 0 alone, and nothing is reduced\nor\n"
    return Finding(
        f"rank {found.rank} alone logs {name!r} with sync_dist=True, at {short(site)}, {found.guard}: Lightning "
        f"reduces it over all ranks, and rank {found.other} has no such metric",
        (
            Evidence(f"{name!r}, {found.guard}", "the same keys on all ranks", f"rank {found.rank}, {site}"),
            Evidence(f"{name!r} was never logged", "", f"rank {found.other}"),
            *proof,
        ),
        Fix(
            "log it on all ranks, or without sync_dist",
            diff=f"-{test}:\n-    self.log({name!r}, value, sync_dist=True)\n{once}"
            f"+self.log({name!r}, value, sync_dist=True)   # called by all ranks",
        ),
        place(site, rank=found.rank),
        table=positions,
    )
