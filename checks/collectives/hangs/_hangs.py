"""What a training that stands has come to: a family of hangs, so that exactly one check speaks of one."""

from __future__ import annotations

import enum

from ddpdoctor.check import JOINING, Claim, Doing, Joining, Marker, Stalled, Training, watch

from ..._hosts.store import meets_nowhere, misses_the_store
from ._pairs import MESSAGES, Pair, in_branches, root_of, unanswered, unanswered_by_handle, unsent
from .calls._branches import in_branch
from .calls._circles import circle
from .calls._compared import NEW_GROUP, at_odds, first_mismatch, in_two_groups, iterations, roots_apart, uneven
from .calls._members import passed_over
from .calls._once_more import once_more
from .handed._callbacks import in_callback, of_thread
from .handed._logged import logged_under_a_test
from .handed._registered import registered
from .reasons._joins import joined_by_some, met_in_join
from .reasons._left import left_by
from .reasons._meeting import met_apart
from .reasons._stops import stop_of_some_ranks
from .reasons._swallowed import swallowed
from .reasons._synced import synced_by_some
from .reasons._threads import ended_thread
from .reasons._untaken import untaken
from .source._batches import behind_a_batch
from .source._deciding import left_out_by_test
from .source._exits import loop_left_by, step_skipped
from .source._guards import crossed, guarded
from .source._handlers import caught_more, handling
from .source._off_by_one import off_by_one
from .source._one_rank import DEFAULT, alone
from .turns._first import by_turns
from .turns._orders import groups_in_order_of_a_set, in_order_of_a_set, turned

GONE = (Doing.FAILED, Doing.DIED, Doing.STOPPED)


class Hang(enum.Enum):
    """What stands in the way: of each exactly one check speaks."""

    GONE = "a rank failed, was killed or was stopped"
    NEVER_JOINED = "a rank never joined the process group"
    LEFT = "a rank has ended while the others go on"
    STANDS = "a rank stands still outside of any communication"
    THREAD = "a rank stands still, and an exception has ended a thread of it"
    WORKS = "a rank works, or asks for something, while the others wait for it"
    SHAPES = "ranks give different shapes to one collective"
    ROOTS = "ranks name different roots of one collective"
    BRANCH = "a rank gathers the weights of a part of the model that another one leaves out"
    ORDER = "ranks call different collectives"
    GUARDED = "a collective is called by some ranks only"
    METRICS = "a metric is synchronised by some ranks only"
    BATCH = "a call is behind a test that each rank's own batch decides"
    SWALLOWED = "an exception that one rank swallowed let it skip a collective"
    CALLED_BACK = "a signal, or the end of an object, has led one rank into a communication"
    THREADS = "a thread communicates in the group of the training"
    EXITED = "one rank has left a loop that another one is in"
    PASSES = "a loop with a collective has more passes on one rank"
    UNEVEN = "ranks have different numbers of batches"
    JOINS = "a collective of the script's own stands within Join"
    ENTERED = "some ranks have entered Join, and others have not"
    RECEIVES = "all ranks wait to receive"
    UNSENT = "a rank waits for a message more than was sent"
    SAME = "all ranks wait in the same collective"
    DIVERGED = "ranks are at different places"
    ASKED = "one rank was told to end the training, by a flag of a framework"
    OUTSIDE = "ranks call an operation with a group that they are not in"
    CUT = "another host does not answer any more"
    UNRESOLVED = "the name of the host at which the ranks meet is not known here"
    ON_LOOPBACK = "other hosts are told to come to a loopback address"
    UNSEEN = "all ranks of this host wait, for others that are not seen from here"
    APART = "all ranks of this host stand still outside of any communication, and others are not seen from here"


def on_hang(*hangs: Hang) -> Marker:
    """Mark what is shown these hangs."""
    return watch(Stalled, claim=Claim(hang_of, hangs))


def hang_of(event: Stalled, training: Training) -> Hang | None:
    """Decide; what is seen for sure comes before what is concluded.

    None where the ranks meet nowhere: that was said when they set out.
    """
    doings = {position.doing for position in event.ranks}
    pids = {position.pid for position in event.ranks}
    if any(meets_nowhere(each) or misses_the_store(each) for each in training.of(Joining) if each.pid in pids):
        return None
    if Doing.WAITING not in doings:
        return Hang.APART if event.apart else _nobody_waits(doings)
    if (apart := _never_met(event, training)) is not None:
        return apart
    if not doings & {*GONE} and stop_of_some_ranks(event.ranks, training):
        return Hang.ASKED
    for doing, verdict in (
        *((each, Hang.GONE) for each in GONE),
        (Doing.ENDED, Hang.LEFT),
        (Doing.WORKING, Hang.WORKS),
        (Doing.ASKING, Hang.WORKS),
        (Doing.STANDING, Hang.STANDS),
    ):
        if doing in doings:
            return _for_want_of(verdict, event, training)
    return _all_wait(event, training)


def _never_met(event: Stalled, training: Training) -> Hang | None:
    """Decide why ranks do not meet in init_process_group; None where they are past it."""
    if event.unresolved and all(each.operation == JOINING for each in event.doing(Doing.WAITING)):
        return Hang.UNRESOLVED
    if event.doing(*GONE, Doing.WORKING) or not (absent(event, training) or met_apart(event, training)):
        return None
    return Hang.CUT if event.silent else Hang.ON_LOOPBACK if event.on_loopback else Hang.NEVER_JOINED


def _for_want_of(verdict: Hang, event: Stalled, training: Training) -> Hang:
    """Decide why the rank for which the others wait has ended, or stands, where that is known."""
    if verdict is Hang.STANDS and ended_thread(event, training) is not None:
        return Hang.THREAD
    return _why_left(event, training) if verdict is Hang.LEFT else verdict


def _why_left(event: Stalled, training: Training) -> Hang:
    found = _skipped(event, training) or (Hang.GUARDED if guarded(event) else Hang.LEFT)
    at_its_end = (
        found is Hang.LEFT and not event.outside and not any(left_by(each.rank, training) for each in event.ranks)
    )
    return Hang.DIVERGED if at_its_end and left_out_by_test(event, training) else found


def _skipped(event: Stalled, training: Training) -> Hang | None:
    """Decide what the source tells for certain of ranks that are at different lines."""
    if passed_over(event, training) is not None:
        return Hang.OUTSIDE
    if by_turns(event):
        return Hang.GUARDED
    if swallowed(event.ranks, training) or handling(event) or caught_more(event):
        return Hang.SWALLOWED
    if alone(event) or registered(event):
        return Hang.GUARDED
    left = loop_left_by(event, training)
    return Hang.EXITED if left is not None and left.loop.only else None


def _nobody_waits(doings: set[Doing]) -> Hang | None:
    """Decide where no rank is in a communication, which is seen from outside alone: nothing hangs where one works."""
    if doings & {*GONE}:
        return Hang.GONE
    if doings & {Doing.WORKING, Doing.ASKING}:
        return None
    return Hang.STANDS if Doing.STANDING in doings else None


def absent(event: Stalled, training: Training) -> tuple[int, ...]:
    """List the ranks that have not called init_process_group, where those that wait do so in it."""
    if any(position.operation != JOINING for position in event.doing(Doing.WAITING)):
        return ()
    pids = {position.pid for position in event.ranks}
    came = {each.rank for each in training.of(Joining) if each.pid in pids}
    return tuple(rank for rank in range(event.world_size) if rank not in came)


def _all_wait(event: Stalled, training: Training) -> Hang:
    operations = {position.operation for position in event.ranks}
    if event.silent:
        return Hang.CUT
    if len(event.ranks) == event.world_size and operations <= MESSAGES:
        return Hang.RECEIVES
    if joined_by_some(training):
        return Hang.ENTERED
    if known := _of_some(event, training):
        return known
    if mismatch := first_mismatch(event.ranks):
        return _mismatched(event, training, mismatch)
    return Hang.UNSEEN if len(event.ranks) < event.world_size else _unlike(event, training)


def _of_some(event: Stalled, training: Training) -> Hang | None:
    """Decide where the source tells why some ranks alone came to a line, or have left one out."""
    if in_callback(event):
        return Hang.CALLED_BACK
    if of_thread(event):
        return Hang.THREADS
    if in_two_groups(event) or groups_in_order_of_a_set(event):
        return Hang.ORDER
    if synced_by_some(event.ranks, training):
        return Hang.METRICS
    if len({position.site for position in event.ranks}) > 1 and (apart := _skipped(event, training)) is not None:
        return apart
    return Hang.GUARDED if alone(event) or crossed(event) else None


def _mismatched(event: Stalled, training: Training, pair: Pair) -> Hang:
    """Decide where two calls do not match: Join, or a condition on the rank, around one of the two lines tells why."""
    if met_in_join({position.rank: position.recent for position in event.ranks}):
        return Hang.JOINS
    (_, ours), (_, theirs) = pair
    found = guarded(event) if ours.site != theirs.site and ours.group in DEFAULT else None
    if (
        found is not None
        and found.position.site in {ours.site, theirs.site}
        and not in_branches(ours.site, theirs.site)
    ):
        return Hang.GUARDED
    if why := _why_unlike(event, training):
        return why
    if ours.operation != theirs.operation or ours.operation == NEW_GROUP or in_order_of_a_set(pair):
        return Hang.ORDER
    return Hang.ROOTS if root_of(ours) != root_of(theirs) else Hang.SHAPES


def _why_unlike(event: Stalled, training: Training) -> Hang | None:
    """Decide where the source around the two lines, or what the ranks called before, tells why they do not match."""
    if behind_a_batch(event.ranks):
        return Hang.BATCH
    if once_more(first_mismatch(event.ranks), event.ranks):
        return Hang.PASSES
    if _has_run_out(event, training):
        return Hang.EXITED
    if left_out_by_test(event, training):
        return Hang.DIVERGED
    return Hang.BRANCH if in_branch(event.ranks) else None


def _has_run_out(event: Stalled, training: Training) -> bool:
    """Whether one rank has left a loop that has no way out but its end, and calls in it came right before, on both."""
    left = loop_left_by(event, training)
    if left is None or left.loop.exits or left.loop.alike:
        return False
    recent = {each.rank: each.recent for each in event.ranks}
    inside, outside = recent[left.other], recent[left.rank]
    return len(inside) > 1 and len(outside) > 1 and inside[-1].site == inside[-2].site == outside[-2].site


def _unlike(event: Stalled, training: Training) -> Hang:
    """Decide where no two calls are seen that should match."""
    ranks = event.ranks
    of_messages = unsent(ranks) or untaken(ranks) or unanswered(ranks) or unanswered_by_handle(ranks)
    if (odd := at_odds(event) or turned(event)) or of_messages:
        return Hang.UNSENT if not odd else _at_odds(event)
    last = {position.recent[-1].site for position in event.ranks if position.recent}
    if len({position.operation for position in event.ranks}) == 1 and len(last) <= 1:
        return _at_one_line(event)
    if uneven(event, training):
        return Hang.UNEVEN
    if guarded(event):
        return Hang.GUARDED
    if behind_a_batch(event.ranks):
        return Hang.BATCH
    return _in_a_loop(event, training)


def _at_odds(event: Stalled) -> Hang:
    """Decide where two ranks are in different operations at one line: the source can tell what one called before."""
    logged, called = logged_under_a_test(event), off_by_one(event)
    if bool(logged) is bool(called):
        return Hang.ORDER
    return Hang.METRICS if logged else Hang.GUARDED


def _at_one_line(event: Stalled) -> Hang:
    """Decide where all ranks wait in one operation at one line."""
    if circle(event):
        return Hang.ORDER
    return Hang.DIVERGED if iterations(event) else Hang.ROOTS if roots_apart(event) else Hang.SAME


def _in_a_loop(event: Stalled, training: Training) -> Hang:
    """Decide where ranks differ by a loop that one of them has left, by what one called before, or by nothing known."""
    if (skipped := step_skipped(event, training)) is not None and skipped.in_handlers:
        return Hang.SWALLOWED
    left = loop_left_by(event, training)
    if left is not None and left.loop.exits:
        return Hang.EXITED
    return Hang.GUARDED if off_by_one(event) else Hang.DIVERGED
