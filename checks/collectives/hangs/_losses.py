"""What became of a rank that another one has lost: a family of losses, so that exactly one check speaks of one."""

from __future__ import annotations

import enum

from ddpdoctor.check import Claim, Crashed, Marker, OrderSeen, PeerLost, Training, watch

from ...checkpoint.writing._made_by_one import made_by_one
from ._pairs import Pair, overrun
from .calls._alone import called_alone, died_where_it_came_alone
from .calls._apart import broken_off, gone_on, mismatch
from .calls._branches import in_branch
from .calls._compared import NEW_GROUP, unlike_passes
from .calls._once_more import more_than_the_lost, once_more
from .calls._step_passed import left_out
from .handed._callbacks import of_threads
from .reasons._joins import joined_by_some, met_in_join
from .reasons._stops import stop_of_some_ranks
from .reasons._swallowed import swallowed
from .reasons._synced import lacked_by_first, synced_by_some
from .source._batches import behind_a_batch, behind_at_loss
from .source._exits import loop_left_before_the_end
from .source._guards import skipped_by_those_who_ended
from .turns._orders import in_order_of_a_set


class Loss(enum.Enum):
    """Why it is gone: of each exactly one check speaks."""

    FAILED = "it failed of its own error"
    FILE = "it looked for a file that one rank alone makes"
    METRICS = "a metric is synchronised by some ranks only"
    ASKED = "one rank was told to end the training, by a flag of a framework"
    ALONE = "one rank alone has called a collective"
    LONE = "the same, by a rank that died there, and the others are on hosts that are not seen from here"
    JOINS = "a collective of the script's own stands within Join"
    ENTERED = "some ranks have entered Join, and others have not"
    SWALLOWED = "an exception that one rank swallowed let it skip a collective"
    HANDLED = "a handler of exceptions let one rank leave a step out"
    BATCH = "a call is behind a test that each rank's own batch decides"
    THREADS = "threads communicate in the group of the training"
    OVERRUN = "a rank was sent a longer message than it had room for"
    PASSES = "a loop with a collective had more passes on one rank"
    BRANCH = "a rank gathers the weights of a part of the model that another one leaves out"
    SHAPES = "ranks gave different shapes to one collective"
    ORDER = "ranks called different collectives"
    EXITED = "one rank has left a loop that another one was in"
    PAST_STEP = "one rank has gone past a step of its loop"
    UNEVEN = "ranks had different numbers of batches, and one went on"
    DIVERGED = "ranks were at different places"
    FEWER = "a rank had fewer batches, and came to the end of its script first"
    GUARDED = "a line under a condition on the rank communicates, and another rank has ended"
    LEFT = "a rank came to the end of its script while another one went on"
    SILENT = "a rank is gone without a word"
    UNSEEN = "all ranks of this host are gone without a word, and others are not seen from here"


def on_loss(*losses: Loss) -> Marker:
    """Mark what is shown these losses."""
    return watch(PeerLost, claim=Claim(loss_of, losses))


def loss_of(event: PeerLost, training: Training) -> Loss | None:
    """Decide; what the source tells for certain comes before what numbers of calls and of batches tell."""
    if event.first is not None:
        return _of_an_error(event, training)
    return (
        _by_the_source(event, training)
        or (_by_the_calls(event, training) if event.gone else None)
        or (_by_the_end(event, training) if event.ended and event.others else None)
        or _without_a_word(event, training)
    )


def _of_an_error(event: PeerLost, training: Training) -> Loss | None:
    """Decide what the error of the rank that failed first comes from."""
    if lacked_by_first(event, training):
        return Loss.METRICS
    if event.first is not None and made_by_one(event.first):
        return Loss.FILE
    return Loss.FAILED if event.others else None


def _by_the_source(event: PeerLost, training: Training) -> Loss | None:
    """Decide by the lines of the last calls, of errors that were caught, and of flags that were set."""
    recent = {each.rank: each.recent for each in event.progress}
    for found, loss in (
        (stop_of_some_ranks(event.progress, training), Loss.ASKED),
        (called_alone(event), Loss.ALONE),
        (swallowed(event.progress, training), Loss.SWALLOWED),
        (synced_by_some(event.progress, training), Loss.METRICS),
        (met_in_join(recent), Loss.JOINS),
        (joined_by_some(training), Loss.ENTERED),
        (behind_a_batch(event.progress) or behind_at_loss(event), Loss.BATCH),
        (of_threads(event), Loss.THREADS),
        (overrun(event.progress), Loss.OVERRUN),
    ):
        if found:
            return loss
    return None


def _by_the_calls(event: PeerLost, training: Training) -> Loss | None:
    """Decide by the numbers of calls and forwards of ranks of which one is gone: gloo ends a process over a size."""
    if pair := mismatch(event, training):
        return _unlike(pair, event)
    if more_than_the_lost(event):
        return Loss.PASSES
    if skipped := left_out(event):
        return Loss.HANDLED if skipped.in_handlers else Loss.PAST_STEP
    if gone := gone_on(event, training):
        if broken_off(event, training):
            return Loss.EXITED
        return Loss.DIVERGED if gone.batches is None else Loss.UNEVEN
    return None


def _unlike(pair: Pair, event: PeerLost) -> Loss:
    """Decide why two calls of one number do not match."""
    if once_more(pair, event.progress):
        return Loss.PASSES
    if in_branch(event.progress):
        return Loss.BRANCH
    (_, ours), (_, theirs) = pair
    is_one = ours.operation == theirs.operation != NEW_GROUP and not in_order_of_a_set(pair)
    return Loss.SHAPES if is_one else Loss.ORDER


def _by_the_end(event: PeerLost, training: Training) -> Loss | None:
    """Decide why a rank came to the end of its script before the others; with Join one may have fewer batches."""
    if loop_left_before_the_end(event, training):
        return Loss.EXITED
    if skipped_by_those_who_ended(event):
        return Loss.GUARDED
    counts = unlike_passes(training)
    if not counts:
        return Loss.LEFT
    done = next((counts[rank] for rank in event.ended if rank in counts), None)
    joins = any(each.joins for each in training.of(OrderSeen))
    return Loss.FEWER if done is not None and done < max(counts.values()) and not joins else None


def _without_a_word(event: PeerLost, training: Training) -> Loss | None:
    """Decide what is said where nothing tells why: nothing of a rank whose crash was told."""
    if not event.others:
        if training.world_size > len(event.progress) and died_where_it_came_alone(event):
            return Loss.LONE
        return Loss.UNSEEN if training.world_size > len(event.progress) else None
    crashed = {each.rank for each in training.of(Crashed)}
    return Loss.SILENT if event.gone and crashed.isdisjoint(event.gone) else None
