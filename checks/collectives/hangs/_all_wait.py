"""What stands in the way where all ranks wait, each in a communication."""

from __future__ import annotations

from ddpdoctor.check import Stalled, Training

from ._kinds import Hang
from ._messages import MESSAGES, unanswered, unanswered_by_handle, unsent
from ._pairs import Pair, in_branches, root_of
from .calls._branches import in_branch
from .calls._circles import circle
from .calls._compared import NEW_GROUP, at_odds, first_mismatch, in_two_groups, iterations, roots_apart, uneven
from .calls._members import passed_over
from .calls._once_more import once_more
from .handed._callbacks import in_callback, of_thread
from .handed._logged import logged_under_a_test
from .handed._registered import registered
from .reasons._joins import joined_by_some, met_in_join
from .reasons._swallowed import swallowed
from .reasons._synced import synced_by_some
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


def skipped(event: Stalled, training: Training) -> Hang | None:
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


def all_wait(event: Stalled, training: Training) -> Hang:
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
    if len({position.site for position in event.ranks}) > 1 and (apart := skipped(event, training)) is not None:
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
    if uneven(event, training):
        return Hang.UNEVEN
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
