"""Backwards: what is to be known when one begins, and when it has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import NeverStepped
from ddpdoctor.watch.rank.compared.exchanges import clock
from ddpdoctor.watch.rank.patch import Wrap, patch
from ddpdoctor.watch.rank.stopwatch import now

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.recorder import Recorder

MANY = 10  # backwards, in which other ranks have stepped


def hook(recorder: Recorder) -> list[Any]:
    """Be called around each backward."""
    import torch

    return [patch(torch.autograd, "backward", _backward(recorder))]


def _backward(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(*args: Any, **kwargs: Any) -> Any:
            exchanges = recorder.exchanges
            if exchanges.in_backward:  # a part that is computed anew, within the whole
                exchanges.nested += 1
                return original(*args, **kwargs)
            if recorder.log is not None and _is_asked_for(recorder):
                recorder.safely(_backward_begins, recorder)
            exchanges.in_backward = True
            _count_backward(recorder, args)
            if args and (exchanges.windows or recorder.growing.graphs.wants):
                recorder.safely(_look_at_losses, recorder, args[0])
            began = now()
            try:
                result = original(*args, **kwargs)
            except RuntimeError as exc:
                recorder.safely(recorder.failures.loses, exc)
                raise
            finally:
                exchanges.in_backward = False
                stopwatch = recorder.stopwatch
                stopwatch.backward += now() - began
                stopwatch.backwards += 1
            if exchanges.windows:
                recorder.safely(_backward_ended, recorder)
            if recorder.log is not None and recorder.early:
                recorder.safely(recorder.models.backward_ended)
                if exchanges.backwards == MANY:
                    recorder.safely(_tell_never_stepped, recorder)
            return result

        return backward

    return wrap


def _is_asked_for(recorder: Recorder) -> bool:
    """Whether anybody wants to know that a backward begins: where it is early, or a loop over data is followed."""
    at_data = recorder.evaluations.open or recorder.feed.passes
    return recorder.early or bool(at_data) or recorder.frameworks.engines.are_asked


def _backward_begins(recorder: Recorder) -> None:
    if recorder.evaluations.open:
        recorder.evaluations.over()
    if recorder.early or recorder.frameworks.engines.are_asked:
        recorder.frameworks.backward(recorder.models)
    if not recorder.models.any():
        recorder.feed.learned()


def _count_backward(recorder: Recorder, args: tuple[Any, ...]) -> None:
    """Count a backward that begins; where there is no optimizer to look at, the weights are looked at here."""
    recorder.exchanges.backwards += 1
    if recorder.log is None:
        return
    if args and not recorder.losses.is_over:
        recorder.safely(recorder.losses.look, args[0])
    if not recorder.ledger.accounts:
        recorder.safely(recorder.updates.backward_begins)
    elif recorder.updates.window is not None:
        recorder.safely(recorder.updates.forget)


def _look_at_losses(recorder: Recorder, losses: Any) -> None:
    if recorder.exchanges.windows:
        recorder.ledger.backward_begins()
        recorder.exchanges.backward(losses)
    if recorder.growing.graphs.wants:
        recorder.growing.graphs.mark(losses)


def _backward_ended(recorder: Recorder) -> None:
    recorder.ledger.backward_ended()
    recorder.updates.backward_ended()


def _tell_never_stepped(recorder: Recorder) -> None:
    """Record that a rank has computed so many gradients without a step."""
    if recorder.writer.counters[event_log.STEPS] == 0 and any(each.synced for each in recorder.models.alive()):
        recorder.emit(NeverStepped, backwards=recorder.exchanges.backwards, clock=clock())
